// Runs `svc store VERB` as a separate process.
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

const MAIN = fileURLToPath(new URL("../../store/src/cli/main.ts", import.meta.url));
/** At least ten times what a command takes. */
const BOUND_MS = 60_000;

export type Outcome = { readonly code: number | null; readonly stdout: Buffer; readonly stderr: string };

/** `env` is added to this process's environment; without it, the home's address files name the servers. */
export function runStore(home: string, args: readonly string[], input: Buffer | string = "", env: NodeJS.ProcessEnv = {}): Promise<Outcome> {
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", MAIN, ...args], {
    env: { ...process.env, SVC_HOME: home, SVC_STORE_MASTER: undefined, SVC_STORE_URL: undefined, SVC_STORE_ADMIN_URL: undefined, ...env },
    timeout: BOUND_MS,
  });
  const parts: Buffer[] = [];
  let stderr = "";
  child.stdout.on("data", (part: Buffer) => parts.push(part));
  child.stderr.setEncoding("utf8").on("data", (text: string) => void (stderr += text));
  child.stdin.on("error", () => {}); // a verb may not read stdin
  child.stdin.end(input);
  return new Promise((resolve) => child.once("close", (code) => resolve({ code, stdout: Buffer.concat(parts), stderr })));
}
