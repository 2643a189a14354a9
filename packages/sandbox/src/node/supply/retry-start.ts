// Retries a failed start while no client knows its sandbox yet: the failure may be passing, e.g. a helper process that was killed.
import { asFailure, type FailureName } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Capacity } from "./capacity.ts";

const MAX_ATTEMPTS = 3;
/** A slower failure is not retried: it has bounds of its own, and a client is waiting. */
const QUICK_MS = 10_000;
/** Only these failures may pass; a full disk, damage or a refusal would fail again. */
const mayPass: ReadonlySet<FailureName> = new Set<FailureName>(["SANDBOX_START_FAILED", "INTERNAL"]);

export type RetryStartParts = { readonly capacity: Pick<Capacity, "isStopping">; readonly log: Log };

/** Runs `attempt`, which undoes itself when it fails. @throws the failure of the last attempt. */
export async function retryStart<T>({ capacity, log }: RetryStartParts, attempt: () => Promise<T>): Promise<T> {
  for (let attempts = 1; ; attempts++) {
    const begin = performance.now();
    try {
      return await attempt();
    } catch (error) {
      const isQuick = performance.now() - begin < QUICK_MS;
      // I15
      if (attempts >= MAX_ATTEMPTS || !isQuick || capacity.isStopping || !mayPass.has(asFailure(error).name)) throw error;
      log.warn({ err: error, attempts }, "a sandbox's start failed; starting it again");
    }
  }
}
