// The client of a sandbox that is abused: a process of its own, so that what it reads costs its neighbours' client nothing.
import { Sandbox } from "e2b";

const [url = "", apiKey = "", sandboxID = "", command = ""] = process.argv.slice(2);
const sandbox = await Sandbox.connect(sandboxID, { apiUrl: url, sandboxUrl: url, apiKey });
process.stdout.write("connected\n");
// Its sandbox is killed in the end.
await sandbox.commands.run(command, { timeoutMs: 0, onStdout: () => {} }).catch(() => undefined);
