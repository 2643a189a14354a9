// Runs `svc backup` as a program of its own, as an operator does.
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

const MAIN = fileURLToPath(new URL("../../sandbox/src/backup/main.ts", import.meta.url));

export type Ran = { readonly code: number | null; readonly stdout: string; readonly stderr: string };

/** `onStart` gets a function that kills the program with SIGKILL. */
export async function runBackup(args: readonly string[], onStart?: (kill: () => void) => void, env: Readonly<Record<string, string>> = {}): Promise<Ran> {
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", MAIN, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ...env },
  });
  const said = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name].setEncoding("utf8").on("data", (part: string) => {
      said[name] += part;
    });
  }
  onStart?.(() => child.kill("SIGKILL"));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  return { code, ...said };
}
