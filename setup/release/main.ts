// Builds the npm packs and the Python wheel of a release into the folder that its one argument names.
import { buildPacks } from "./packs.ts";
import { buildPythonClient } from "./python-client.ts";

const [folder = ""] = process.argv.slice(2);
for (const path of [...(await buildPacks(folder)), await buildPythonClient(folder)]) process.stderr.write(`svc: release: ${path}\n`);
