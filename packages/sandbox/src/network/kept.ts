// A helper program that runs as long as the node: it is restarted when it dies, and dies with the node.
import type { ChildProcess } from "node:child_process";
import type { Socket } from "node:net";
import type { Log } from "@svc/kit/log.ts";

/** The kernel kills the wrapped program when the node dies, for whatever reason. */
export const dieWithUs = ["setpriv", "--pdeathsig", "KILL"] as const;

const MIN_RESTART_MS = 100;
const MAX_RESTART_MS = 30_000;

export type Kept = { close(): void };

export type KeptOptions = {
  /** The program's name in the log: "the reader of denied packets". */
  readonly what: string;
  /** The consequence while it does not run. */
  readonly without: string;
  readonly log: Log;
  readonly first: ChildProcess;
  readonly startNext: () => Promise<ChildProcess>;
};

export function keep({ what, without, log, first, startNext }: KeptOptions): Kept {
  let current = first;
  let closed = false;
  let restartMs = MIN_RESTART_MS;
  let timer: NodeJS.Timeout | undefined;

  function watch(child: ChildProcess): void {
    const begun = performance.now();
    child.once("exit", (code, signal) => {
      if (closed) return;
      // A program that lived for a while is restarted quickly; one that dies repeatedly is restarted less and less often.
      restartMs = performance.now() - begun > MAX_RESTART_MS ? MIN_RESTART_MS : Math.min(restartMs * 2, MAX_RESTART_MS);
      log.warn({ code, signal, restartMs }, `${what} ended; restarting it`);
      timer = setTimeout(() => void restart(), restartMs).unref();
    });
  }

  async function restart(): Promise<void> {
    try {
      current = await startNext();
      if (closed) return void current.kill("SIGKILL");
      watch(current);
    } catch (error) {
      if (closed) return;
      restartMs = Math.min(restartMs * 2, MAX_RESTART_MS);
      log.warn({ err: error, restartMs }, `${what} cannot run at the moment: ${without}`);
      timer = setTimeout(() => void restart(), restartMs).unref();
    }
  }

  watch(current);
  return {
    close() {
      closed = true;
      clearTimeout(timer);
      current.kill("SIGKILL");
    },
  };
}

/** Keeps a helper from keeping alive a process that has nothing else to do. */
export function unref(child: ChildProcess): void {
  child.unref();
  // The pipes are sockets, though their types do not say so.
  for (const pipe of [child.stdout, child.stderr]) (pipe as Socket | null)?.unref();
}
