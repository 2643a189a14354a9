// Builds the native part of a package as a commit has it, to be measured beside that of the working tree.
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { progress } from "./report.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const MAX_OUTPUT_BYTES = 1 << 26;

async function run(command: string, args: readonly string[]): Promise<string> {
  try {
    return (await promisify(execFile)(command, args, { maxBuffer: MAX_OUTPUT_BYTES, env: { ...process.env, SVC_NODE: process.execPath } })).stdout.trim();
  } catch (error) {
    const { stderr = "", stdout = "" } = error as { stderr?: string; stdout?: string };
    throw new Error(`${command} ${args.join(" ")} failed: ${(stderr || stdout).trim().slice(-4000)}`, { cause: error });
  }
}

/** Returns the folder with the build, which later runs use again. The commit's own flags apply; `target` names one that only a bench needs. */
export async function buildNative(name: "store" | "indexer", commit: string, target?: string): Promise<{ folder: string; commit: string }> {
  const whole = await run("git", ["-C", ROOT, "rev-parse", "--verify", `${commit}^{commit}`]);
  const cache = join(process.env["SVC_CACHE"] ?? tmpdir(), "bench-native");
  const folder = join(cache, `${name}-${whole}`);
  if (existsSync(folder)) return { folder, commit: whole };
  progress(`building the native part of ${name} at ${whole.slice(0, 12)}`);
  mkdirSync(cache, { recursive: true });
  const making = mkdtempSync(join(cache, ".making-"));
  try {
    await run("sh", ["-c", `git -C "$1" archive "$2" "packages/$3/native" | tar -x -C "$4"`, "sh", ROOT, whole, name, making]);
    const built = join(making, "built");
    await run(join(making, `packages/${name}/native/build.sh`), [built]);
    if (target !== undefined) await run("cmake", ["--build", built, "--target", target]);
    renameSync(built, folder);
  } finally {
    rmSync(making, { recursive: true, force: true });
  }
  return { folder, commit: whole };
}
