// Waits for something to become true, within a bound far beyond what it should take.
import { setTimeout as sleep } from "node:timers/promises";

/** Ten times and more what anything in these tests should take. */
export const UNTIL_BOUND_MS = 60_000;

/** The first value that is not undefined. @throws after UNTIL_BOUND_MS, naming what did not happen. */
export async function until<T>(what: string, read: () => Promise<T | undefined> | T | undefined, everyMs = 50): Promise<T> {
  const end = performance.now() + UNTIL_BOUND_MS;
  while (performance.now() < end) {
    const value = await read();
    if (value !== undefined) return value;
    await sleep(everyMs);
  }
  throw new Error(`${what}: not within ${UNTIL_BOUND_MS} ms`);
}
