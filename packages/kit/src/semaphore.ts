// A FIFO semaphore over permits or bytes: callers that do not fit wait in order, up to a bound, a time limit, or their signal.
import { fail } from "@svc/contract/failures.ts";

/** `signal` and `waitMs` end the wait. */
type Wanted = { readonly units?: number; readonly signal?: AbortSignal; readonly waitMs?: number };

type Waiter = { readonly units: number; enter(hasEntered: boolean): void };

export class Semaphore {
  readonly #most: number;
  readonly #maxWaiting: number;
  readonly #waiters = new Set<Waiter>();
  #taken = 0;

  constructor(most: number, maxWaiting = Number.POSITIVE_INFINITY) {
    this.#most = most;
    this.#maxWaiting = maxWaiting;
  }

  get taken(): number {
    return this.#taken;
  }

  get waiting(): number {
    return this.#waiters.size;
  }

  /**
   * Runs `work` with one unit, at once where it is free.
   *
   * @throws TOO_MANY_REQUESTS where too many wait already
   */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (!this.#take(1)) await this.#wait({});
    return this.#release(work);
  }

  /** The same; undefined if `signal` ended the wait. */
  async within<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T | undefined> {
    return this.#take(1) || (await this.#wait({ signal })) ? this.#release(work) : undefined;
  }

  /**
   * Takes the units, and returns false if the wait ended without them. The caller gives the units back exactly once, with `leave`. A single
   * caller may exceed the limit while no other is in.
   *
   * @throws TOO_MANY_REQUESTS where too many wait already
   */
  async enter(wanted: Wanted = {}): Promise<boolean> {
    return this.#take(wanted.units ?? 1) || this.#wait(wanted);
  }

  leave(units = 1): void {
    this.#taken -= units;
    for (const next of this.#waiters) {
      if (!this.#fits(next.units)) return;
      this.#taken += next.units;
      next.enter(true);
    }
  }

  async #release<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } finally {
      this.leave();
    }
  }

  #take(units: number): boolean {
    if (this.#waiters.size > 0 || !this.#fits(units)) return false;
    this.#taken += units;
    return true;
  }

  #wait({ units = 1, signal, waitMs }: Wanted): Promise<boolean> {
    if (signal?.aborted === true) return Promise.resolve(false);
    if (this.#waiters.size >= this.#maxWaiting) fail("TOO_MANY_REQUESTS", `${this.#maxWaiting} others wait already, the maximum; try again later`);
    return new Promise((resolve) => {
      const giveUp = (): void => waiter.enter(false);
      const timer = waitMs === undefined ? undefined : setTimeout(giveUp, waitMs);
      const waiter: Waiter = {
        units,
        enter: (hasEntered) => {
          this.#waiters.delete(waiter);
          clearTimeout(timer);
          signal?.removeEventListener("abort", giveUp);
          resolve(hasEntered);
          // Smaller ones may have waited behind it.
          if (!hasEntered) this.leave(0);
        },
      };
      this.#waiters.add(waiter);
      signal?.addEventListener("abort", giveUp);
    });
  }

  #fits(units: number): boolean {
    return this.#taken === 0 || this.#taken + units <= this.#most;
  }
}
