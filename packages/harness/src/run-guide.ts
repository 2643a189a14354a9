// Runs the commands of a guide as one script, in a process group that ends with it.
import { spawn } from "node:child_process";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
/** At least ten times what a guide takes. */
const BOUND_MS = 5 * 60_000;

/** Returns the exit code and the complete output. */
export async function runGuide(commands: string, env: Readonly<Record<string, string | undefined>>): Promise<{ code: number | null; said: string }> {
  const child = spawn("bash", ["-c", `set -euxo pipefail\n${commands}`], {
    cwd: ROOT,
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, PATH: `${dirname(process.execPath)}:${process.env["PATH"]}`, ...env },
  });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (chunk: string) => void (said += chunk));
  const end = () => {
    try {
      process.kill(-(child.pid ?? 0), "SIGKILL");
    } catch {
      // The group was already empty.
    }
  };
  const bound = setTimeout(end, BOUND_MS);
  process.once("exit", end);
  const code = await new Promise<number | null>((resolve) => child.once("exit", resolve));
  clearTimeout(bound);
  end();
  return { code, said };
}
