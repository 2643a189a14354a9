// Extends a sandbox's timeout while it is used from this machine.
import type { SvcClient } from "@svc/contract/client.ts";

/** The minimum of the remaining timeout while the sandbox is used. */
const KEPT_ALIVE_SECONDS = 120;
const KEEP_ALIVE_EVERY_MS = 45_000;

/** Extends the timeout while `isUsed`, until disposed; `extend` does it at once instead of at the next tick. */
export function keepAlive(client: SvcClient, sandboxID: string, isUsed: () => boolean = () => true): Disposable & { extend(): void } {
  const extend = () => {
    // A failure is ignored here, since the user of the sandbox will see it; the next tick retries.
    if (isUsed()) void client.refresh(sandboxID, KEPT_ALIVE_SECONDS).catch(() => {});
  };
  extend();
  const timer = setInterval(extend, KEEP_ALIVE_EVERY_MS);
  return { extend, [Symbol.dispose]: () => clearInterval(timer) };
}
