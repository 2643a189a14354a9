// Start and stop of a server: one ready line, drain and close in order, all within ten seconds.
import type { Log } from "./log.ts";

/** All of a server's parts together must have stopped after this. */
export const STOP_BOUND_MS = 10_000;

/** Something that stops: named, so that the log says what did not. */
export type Part = { readonly name: string; close(): Promise<void> };

/** The signal that stops this process, listened for from the first time somebody asks. */
let stopping: Promise<NodeJS.Signals> | undefined;

function stopSignal(): Promise<NodeJS.Signals> {
  stopping ??= new Promise((resolve) => {
    process.once("SIGTERM", resolve);
    process.once("SIGINT", resolve);
  });
  return stopping;
}

/** One line on stdout when requests are accepted; what `svc up`, tests and people wait for, and then may stop it at once. */
export function ready(server: string, url: string): void {
  void stopSignal();
  process.stdout.write(`svc ${server} ready at ${url}\n`);
}

/**
 * Waits for SIGTERM or SIGINT, then closes the parts in this order. A second signal, or a part past
 * the bound, ends the process at once with code 1: recovery at the next start is made for that.
 */
export async function untilStopped(log: Log, parts: readonly Part[]): Promise<number> {
  const signal = await stopSignal();
  log.info({ signal }, "stopping");
  return closeParts(log, parts);
}

export async function closeParts(log: Log, parts: readonly Part[]): Promise<number> {
  let current = "nothing";
  const giveUp = (why: string) => {
    log.error({ part: current }, why);
    process.exit(1);
  };
  const timer = setTimeout(() => giveUp(`not stopped within ${STOP_BOUND_MS} ms`), STOP_BOUND_MS - 500);
  const again = () => giveUp("a second signal: ending at once");
  process.once("SIGTERM", again);
  process.once("SIGINT", again);
  for (const part of parts) {
    current = part.name;
    try {
      await part.close();
    } catch (error) {
      log.error({ err: error, part: part.name }, "part did not close cleanly");
    }
  }
  clearTimeout(timer);
  process.off("SIGTERM", again);
  process.off("SIGINT", again);
  log.info("stopped");
  return 0;
}
