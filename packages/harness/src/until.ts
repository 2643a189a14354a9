// Waits for a condition, with a limit far beyond what it should take.
import { setTimeout as sleep } from "node:timers/promises";

/** At least ten times what anything in these tests should take. */
export const UNTIL_BOUND_MS = 60_000;

type Read<T> = () => Promise<T | undefined> | T | undefined;

/** Returns the first value that is not undefined. @throws after `boundMs`, naming what did not happen; also if a read hangs. */
export async function until<T>(what: string, read: Read<T>, everyMs = 50, boundMs = UNTIL_BOUND_MS): Promise<T> {
  const end = performance.now() + boundMs;
  while (performance.now() < end) {
    const value = await within(end - performance.now(), read(), `${what}: not within ${boundMs} ms, and the last look at it hangs`);
    if (value !== undefined) return value;
    await sleep(everyMs);
  }
  throw new Error(`${what}: not within ${boundMs} ms`);
}

async function within<T>(boundMs: number, reading: Promise<T> | T, otherwise: string): Promise<T> {
  if (!(reading instanceof Promise)) return reading;
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(otherwise)), boundMs);
  try {
    return await Promise.race([reading, promise]);
  } finally {
    clearTimeout(timer);
  }
}
