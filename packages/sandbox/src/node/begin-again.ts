// A start that fails before any client knows its sandbox is begun again by the node itself: a part of it may just have been killed.
import { asFailure, type FailureName } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Capacity } from "./capacity.ts";

const MAX_ATTEMPTS = 3;
/** What took longer has its own bounds, and a client that waits for it. */
const QUICK_MS = 10_000;
/** A full disk, damage or a refusal would be the same again. */
const mayPass: ReadonlySet<FailureName> = new Set<FailureName>(["SANDBOX_START_FAILED", "INTERNAL"]);

export type BeginAgainParts = { readonly capacity: Pick<Capacity, "isStopping">; readonly log: Log };

/** `attempt` undoes itself when it fails. @throws what its last attempt threw. */
export async function beginAgain<T>({ capacity, log }: BeginAgainParts, attempt: () => Promise<T>): Promise<T> {
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
