// Bounds transfers in concurrency and bytes per second.
import { setTimeout as sleep } from "node:timers/promises";
import { Semaphore } from "@svc/kit/semaphore.ts";

/** Runs `work` for each item. After the first failure no further item is started; it is thrown once the started ones have ended. */
export async function eachAtOnce<T>(items: Iterable<T>, atOnce: number, work: (item: T) => Promise<void>): Promise<void> {
  const iterator = items[Symbol.iterator]();
  let failure: { readonly error: unknown } | undefined;
  const worker = async () => {
    while (failure === undefined) {
      const next = iterator.next();
      if (next.done === true) return;
      await work(next.value).catch((error: unknown) => {
        failure ??= { error };
      });
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  if (failure !== undefined) throw failure.error;
}

/** Runs `work` when the byte rate allows it, with at most `atOnce` running over all callers. `bytesPerSecond` 0 means unlimited. */
export function openPace(bytesPerSecond: number, atOnce: number): <T>(bytes: number, work: () => Promise<T>) => Promise<T> {
  const running = new Semaphore(atOnce);
  let freeAtMs = 0;
  return (bytes, work) =>
    running.run(async () => {
      if (bytesPerSecond > 0) {
        const now = performance.now();
        const beginsAtMs = Math.max(now, freeAtMs);
        freeAtMs = beginsAtMs + (bytes / bytesPerSecond) * 1000;
        if (beginsAtMs > now) await sleep(beginsAtMs - now);
      }
      return work();
    });
}
