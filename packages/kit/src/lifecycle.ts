// Start and stop of a server: one ready line, drain and close in order, all within ten seconds.
import type { Log } from "./log.ts";

/** The time limit for all parts of a server together to stop. */
export const STOP_BOUND_MS = 10_000;

/** Something that stops; the log names it if it does not. */
export type Part = { readonly name: string; close(): Promise<void> };

/** The signal that stops this process; the listeners are installed on first use. */
let stopping: Promise<NodeJS.Signals> | undefined;

function stopSignal(): Promise<NodeJS.Signals> {
  stopping ??= new Promise((resolve) => {
    process.once("SIGTERM", resolve);
    process.once("SIGINT", resolve);
  });
  return stopping;
}

/**
 * Prints the one line that says that requests are accepted. `svc up`, tests and people wait for it, and may stop the server right after.
 */
export function ready(server: string, url: string): void {
  void stopSignal();
  process.stdout.write(`svc ${server} ready at ${url}\n`);
}

/**
 * Waits for SIGTERM or SIGINT, then closes the parts in this order. A second signal, or a part that exceeds the limit, ends the process at
 * once with code 1; the next start recovers from that.
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
