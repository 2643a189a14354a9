// Builds the Python client as a wheel: its sources, and the operations written from the OpenAPI document.
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { streamEvents } from "../../packages/contract/src/observe.ts";
import { openapi } from "../../packages/contract/src/openapi.ts";
import { nodeOperations } from "../../packages/contract/src/sandbox.ts";
import { type Document, pythonOperations } from "./python-operations.ts";

const run = promisify(execFile);
const root = join(import.meta.dirname, "../..");
const BUILD_MS = 300_000;

/** Writes the wheel into `folder`; pip fetches what builds it. Returns its path. */
export async function buildPythonClient(folder: string): Promise<string> {
  const stage = await mkdtemp(join(tmpdir(), "svc-python-client-"));
  try {
    await cp(join(root, "packages/client-python"), stage, { recursive: true });
    const { version } = JSON.parse(await readFile(join(root, "package.json"), "utf8")) as { version: string };
    const project = join(stage, "pyproject.toml");
    await writeFile(project, (await readFile(project, "utf8")).replace(/^version = .*$/m, `version = "${version}"`));
    const document = openapi({ ...nodeOperations, streamEvents }, { title: "svc sandbox platform", version }) as unknown as Document;
    await writeFile(join(stage, "svc_client/_generated.py"), pythonOperations(document));
    await mkdir(folder, { recursive: true });
    await run("python3", ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, stage], { timeout: BUILD_MS });
    const wheel = (await readdir(folder)).find((name) => name.startsWith("svc_client-") && name.endsWith(".whl"));
    if (wheel === undefined) throw new Error(`pip left no wheel of svc_client in ${folder}`);
    return join(folder, wheel);
  } finally {
    await rm(stage, { recursive: true, force: true });
  }
}
