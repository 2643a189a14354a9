// Runs a program in its own process group, keeps its output, and ensures that nothing outlives the runner.
import { spawn } from "node:child_process";

export type Ended = { readonly code: number | string; readonly output: string };

const running = new Set<number>();
/** Longer output is cut at the front, because the end is what matters. */
const KEPT_OUTPUT_CHARS = 2_000_000;
/** After SIGTERM a test has this long to end its own children and sandboxes. */
const GRACE_MS = 15_000;

export async function runChild(command: string, args: readonly string[], options: { cwd: string; env?: NodeJS.ProcessEnv; limitMs: number }): Promise<Ended> {
  const { promise, resolve } = Promise.withResolvers<Ended>();
  const child = spawn(command, args, { cwd: options.cwd, env: { ...process.env, ...options.env }, stdio: ["ignore", "pipe", "pipe"], detached: true });
  const group = child.pid;
  let output = "";
  const keep = (chunk: string) => {
    output = (output + chunk).slice(-KEPT_OUTPUT_CHARS);
  };
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", keep);
  child.once("error", (error) => resolve({ code: "error", output: `${output}${command}: ${error.message}\n` }));
  if (group === undefined) return promise;

  running.add(group);
  const limit = setTimeout(() => {
    keep(`\nended by the runner after ${options.limitMs / 1000} s\n`);
    signalGroup(group, "SIGTERM");
    setTimeout(() => signalGroup(group, "SIGKILL"), GRACE_MS).unref();
  }, options.limitMs);
  child.once("exit", (code, signal) => {
    clearTimeout(limit);
    // Processes that the program left running would keep its pipes, and the runner, open.
    signalGroup(group, "SIGKILL");
    running.delete(group);
    child.once("close", () => resolve({ code: code ?? signal ?? "unknown", output }));
  });
  return promise;
}

/** Sends SIGTERM to all groups; their tests end what they started. */
export function endChildren(): void {
  for (const group of running) signalGroup(group, "SIGTERM");
}

function signalGroup(group: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-group, signal);
  } catch {
    // The group is gone.
  }
}
