// The number of sandboxes on a node: running ones and those that are starting, up to a maximum; none is admitted while the node stops or drains.
import { Failure, fail } from "@svc/contract/failures.ts";
import type { Charge, TenantQuotas } from "@svc/kit/keys/tenant-quotas.ts";

export interface Capacity {
  /** @throws SHUTTING_DOWN; CAPACITY_EXHAUSTED while the node drains; TOO_MANY_REQUESTS at the maximum. */
  check(): void;
  /** Pauses idle sandboxes if the node is full, then checks as `check` does. One more sandbox counts while `work` runs, and the charge against its tenant's quotas. @throws QUOTA_EXCEEDED. */
  reserve<T>(charge: Charge, work: () => Promise<T>): Promise<T>;
  /** While true, no sandbox is admitted. */
  setDraining(isDraining: boolean): void;
  readonly isDraining: boolean;
  /** Refuses every sandbox from now on. */
  stop(): void;
  readonly isStopping: boolean;
  readonly max: number;
  /** The number of creates, forks and resumes under way. */
  readonly onTheirWay: number;
}

export type Population = {
  /** The number of running sandboxes that clients own. */
  running(): number;
  /** Pauses one idle sandbox; false where there is none. */
  pauseIdle(): Promise<boolean>;
};

/** Details of a refusal that lasts until an operator ends the drain; the proxy sends the reason in a header. */
export const drains = { retryAfterSeconds: 5, details: { reason: "draining" } };

export function openCapacity(maxSandboxes: number, { running, pauseIdle }: Population, nodeID: () => string, quotas: Pick<TenantQuotas, "run">): Capacity {
  let onTheirWay = 0;
  let isStopping = false;
  let isDraining = false;

  const isFull = () => running() + onTheirWay >= maxSandboxes;

  function check(): void {
    if (isStopping) fail("SHUTTING_DOWN", "the node is stopping");
    if (isDraining) {
      const id = nodeID();
      throw new Failure("CAPACITY_EXHAUSTED", `node ${id} is draining: it starts and resumes nothing until \`svc nodes undrain ${id}\``, drains);
    }
    if (isFull()) {
      // E2B clients wait instead of failing when a message contains "maximum number of concurrent".
      const message = `this node has the maximum number of concurrent sandboxes, ${maxSandboxes} (sandbox.max_sandboxes); delete some, or try again later`;
      throw new Failure("TOO_MANY_REQUESTS", message, { retryAfterSeconds: 5 });
    }
  }

  return {
    check,
    async reserve(charge, work) {
      while (isFull() && !isStopping && !isDraining && (await pauseIdle()));
      check();
      onTheirWay++;
      try {
        return await quotas.run(charge, work);
      } finally {
        onTheirWay--;
      }
    },
    setDraining(next) {
      isDraining = next;
    },
    get isDraining() {
      return isDraining;
    },
    stop() {
      isStopping = true;
    },
    max: maxSandboxes,
    get isStopping() {
      return isStopping;
    },
    get onTheirWay() {
      return onTheirWay;
    },
  };
}
