// How many sandboxes a node holds: those that run and those on their way, up to a maximum; none more once it stops.
import { Failure, fail } from "@svc/contract/failures.ts";

export interface Capacity {
  /** @throws SHUTTING_DOWN; CAPACITY_EXHAUSTED while it drains; TOO_MANY_REQUESTS when this node holds the maximum. */
  check(): void;
  /** As `check`, once idle sandboxes were paused where that makes room; while `work` runs, one more counts. */
  reserve<T>(work: () => Promise<T>): Promise<T>;
  /** While true nothing is admitted. */
  setDraining(isDraining: boolean): void;
  readonly isDraining: boolean;
  /** From here on nothing is admitted. */
  stop(): void;
  readonly isStopping: boolean;
  readonly max: number;
  /** Creates, forks and resumes under way. */
  readonly onTheirWay: number;
}

export type Places = {
  /** Sandboxes that clients own and that run. */
  running(): number;
  /** Pauses one that may be; false where there is none. */
  makeRoom(): Promise<boolean>;
};

/** Of a refusal that lasts until an operator ends a drain; the proxy's header bears the reason. */
export const drains = { retryAfterSeconds: 5, details: { reason: "draining" } };

export function openCapacity(maxSandboxes: number, { running, makeRoom }: Places, nodeID: () => string): Capacity {
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
      // Clients wait, instead of failing, where they read "maximum number of concurrent".
      const message = `this node has the maximum number of concurrent sandboxes, ${maxSandboxes} (sandbox.max_sandboxes); delete some, or try again later`;
      throw new Failure("TOO_MANY_REQUESTS", message, { retryAfterSeconds: 5 });
    }
  }

  return {
    check,
    async reserve(work) {
      while (isFull() && !isStopping && !isDraining && (await makeRoom()));
      check();
      onTheirWay++;
      try {
        return await work();
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
