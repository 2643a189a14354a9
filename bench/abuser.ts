// The client of an abusive sandbox, in a separate process, so that its reads do not slow down the neighbours' client.
import { Sandbox } from "e2b";

const [url = "", apiKey = "", sandboxID = "", command = ""] = process.argv.slice(2);
const sandbox = await Sandbox.connect(sandboxID, { apiUrl: url, sandboxUrl: url, apiKey });
process.stdout.write("connected\n");
// The command ends when the bench kills its sandbox.
await sandbox.commands.run(command, { timeoutMs: 0, onStdout: () => {} }).catch(() => undefined);
