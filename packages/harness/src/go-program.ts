// Builds a program of others for tests from its released Go modules, once for each recipe.
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

/** Ten times what the longest build takes on two idle cores. */
const BUILD_MS = 60 * 60_000;

/** Returns the program of a folder of this package, which is cached by its recipe next to what set-up made. Needs SVC_GO. */
export async function builtProgram(name: string): Promise<string> {
  return join(await built(name, ["go.mod", "go.sum", "main.go"], "."), name);
}

/** Returns the folder with the programs that go.mod of a folder of this package names as tools; cached in the same way. */
export function builtTools(name: string): Promise<string> {
  return built(name, ["go.mod", "go.sum"], "tool");
}

async function built(name: string, files: readonly string[], what: string): Promise<string> {
  const source = join(import.meta.dirname, "..", name);
  const recipe = createHash("sha256");
  for (const file of files) recipe.update(readFileSync(join(source, file)));
  const folder = join(process.env["SVC_CACHE"] ?? tmpdir(), name, recipe.digest("hex").slice(0, 20));
  if (existsSync(folder)) return folder;
  mkdirSync(join(folder, ".."), { recursive: true });
  const made = `${folder}.${process.pid}`;
  const args = ["-n", "10", process.env["SVC_GO"] ?? "go", "build", "-trimpath", "-ldflags=-s -w", "-o", `${made}/`, what];
  await promisify(execFile)("nice", args, { cwd: source, timeout: BUILD_MS, maxBuffer: 2 ** 24 });
  // Another process may have built the same in the meantime.
  if (existsSync(folder)) rmSync(made, { recursive: true });
  else renameSync(made, folder);
  return folder;
}
