// Drives the unmodified E2B JavaScript SDK by a domain over TLS; prints one line of JSON.
import dns from "node:dns";
import { Sandbox } from "e2b";

// Every name below the domain is this machine, as DNS has it elsewhere.
const name = process.env["SVC_TEST_DOMAIN"] ?? "";
const lookup = dns.lookup as (host: string, ...rest: unknown[]) => void;
Object.assign(dns, { lookup: (host: string, ...rest: unknown[]) => lookup(host.endsWith(name) ? "127.0.0.1" : host, ...rest) });

const said: Record<string, unknown> = {};
const sandbox = await Sandbox.create("base", { timeoutMs: 120_000 });
said["run"] = (await sandbox.commands.run("echo $((6*7))")).stdout;
await sandbox.files.write("note", "kept ".repeat(100_000));
said["file"] = (await sandbox.files.read("note")).length;
await sandbox.files.write("/home/user/web/index.html", "from inside");
await sandbox.commands.run("cd /home/user/web && python3 -m http.server 8000", { background: true });
await sandbox.commands.run("until curl -sf -o /dev/null http://127.0.0.1:8000/; do sleep 0.2; done");
said["port"] = await (await fetch(`https://${sandbox.getHost(8000)}/`)).text();
const began = Promise.withResolvers<void>();
const handle = await sandbox.commands.run("echo begun; sleep 600", { background: true, onStdout: () => began.resolve() });
await began.promise;
const end = handle.wait().then(
  () => "clean",
  () => "error",
);
await sandbox.kill();
said["end"] = await end;
said["running"] = await sandbox.isRunning();
console.log(JSON.stringify(said));
process.exit();
