// The `svc` command: enables the compile cache, then passes its arguments to run.ts.
import { enableCompileCache } from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";

// Stripping types and compiling is half of a short command's time. The cache must be in a folder that others cannot write to.
enableCompileCache(join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "svc", "compiled"));

const { run } = await import("./run.ts");
const { exactArguments } = await import("./shell/raw-arguments.ts");
process.exitCode = await run(exactArguments(process.argv.slice(2)));
