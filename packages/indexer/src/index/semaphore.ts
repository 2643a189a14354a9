// A FIFO semaphore; a waiter can give up through its signal.

export class Semaphore {
  #free: number;
  readonly #waiting: { enter: () => void; signal: AbortSignal }[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  /** Runs `work` with a permit; undefined if `signal` ended the wait. */
  async within<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T | undefined> {
    if (this.#free > 0) this.#free--;
    else if (!(await this.#entered(signal))) return undefined;
    try {
      return await work();
    } finally {
      this.#pass();
    }
  }

  async #entered(signal: AbortSignal): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const mine = { enter: resolve, signal };
    this.#waiting.push(mine);
    const leave = (): void => resolve();
    signal.addEventListener("abort", leave, { once: true });
    await promise;
    signal.removeEventListener("abort", leave);
    const at = this.#waiting.indexOf(mine);
    if (at < 0) return true;
    this.#waiting.splice(at, 1);
    return false;
  }

  /** Passes the permit to the next waiter that has not given up. */
  #pass(): void {
    for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
      if (next.signal.aborted) continue;
      next.enter();
      return;
    }
    this.#free++;
  }
}
