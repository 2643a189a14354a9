// The `svc` command: caches compiled sources, then hands its words to run.ts.
import { enableCompileCache } from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";

// Stripping types and compiling is half of a short command's time. The cache must not lie where others can write.
enableCompileCache(join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "svc", "compiled"));

const { run } = await import("./run.ts");
const { exactWords } = await import("./raw-words.ts");
process.exitCode = await run(exactWords(process.argv.slice(2)));
