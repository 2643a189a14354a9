// Forwards this process's signals to a process in a sandbox.
import { constants } from "node:os";
import type { EnvdClient } from "@svc/contract/envd.ts";
import { remark } from "../output/complain.ts";

const FORWARDED = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR2"] as const;

/**
 * Until disposed, signals go to the process that `pidOf` returns. envd itself can send only SIGTERM and SIGKILL; for the others a shell in the sandbox runs
 * kill. A second SIGINT kills the process, a third gives up on the sandbox.
 */
export function forwardSignals(envd: EnvdClient, pidOf: () => number | undefined, user: string | undefined): Disposable {
  let interrupts = 0;
  const forward = (signal: NodeJS.Signals) => {
    const pid = pidOf();
    if (signal === "SIGINT") interrupts++;
    if (pid === undefined || interrupts > 2) {
      if (pid !== undefined) remark(`svc: gave up; process ${pid} may run on in the sandbox`);
      process.exit(128 + constants.signals[signal]);
    }
    void send(envd, pid, signal === "SIGINT" && interrupts > 1 ? "SIGKILL" : signal, user).catch((error: Error) =>
      remark(`svc: ${signal} did not reach process ${pid}: ${error.message}`),
    );
  };
  for (const signal of FORWARDED) process.on(signal, forward);
  return {
    [Symbol.dispose]() {
      for (const signal of FORWARDED) process.off(signal, forward);
    },
  };
}

async function send(envd: EnvdClient, pid: number, signal: NodeJS.Signals, user: string | undefined): Promise<void> {
  if (signal === "SIGTERM" || signal === "SIGKILL") return await envd.sendSignal({ pid }, signal, { user });
  // The process group is tried first, since a terminal's Ctrl-C reaches the children too.
  const script = 'kill -s "$1" -- "-$2" 2>/dev/null || kill -s "$1" "$2"';
  for await (const event of envd.start({ cmd: "/bin/sh", args: ["-c", script, "sh", signal.slice("SIG".length), String(pid)], user, stdin: false })) {
    if (event.type === "end" && event.exitCode !== 0) throw new Error(`kill ended with ${event.exitCode}`);
  }
}
