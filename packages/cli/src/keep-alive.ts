// Extends a sandbox's timeout while somebody uses it from here.
import type { SvcClient } from "@svc/contract/client.ts";

/** While it is used a sandbox has at least this much life left. */
const KEPT_ALIVE_SECONDS = 120;
const KEEP_ALIVE_EVERY_MS = 45_000;

/** Until disposed, the sandbox lives on while `isUsed`; `extend` does not wait for the next tick. */
export function keepAlive(client: SvcClient, sandboxID: string, isUsed: () => boolean = () => true): Disposable & { extend(): void } {
  const extend = () => {
    // A failure shows where the sandbox is used; the next tick tries again.
    if (isUsed()) void client.refresh(sandboxID, KEPT_ALIVE_SECONDS).catch(() => {});
  };
  extend();
  const timer = setInterval(extend, KEEP_ALIVE_EVERY_MS);
  return { extend, [Symbol.dispose]: () => clearInterval(timer) };
}
