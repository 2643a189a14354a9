// The time bounds of all requests that engines work on: one timer looks at them, so that no chunk of a stream sets one.

/** How often it looks; bounds are seconds. */
const TICK_MS = 100;

export interface Bounded {
  /** On the clock of `Bounds.nowMs`; infinite while nothing is bounded. */
  boundAtMs: number;
  onBound(): void;
}

export class Bounds {
  /** The time of the last tick, on the clock of `performance`. */
  nowMs = performance.now();
  readonly #bounded = new Set<Bounded>();
  readonly #timer = setInterval(() => this.#tick(), TICK_MS).unref();

  add(one: Bounded): void {
    this.#bounded.add(one);
  }

  delete(one: Bounded): void {
    this.#bounded.delete(one);
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #tick(): void {
    this.nowMs = performance.now();
    for (const one of this.#bounded) if (one.boundAtMs <= this.nowMs) one.onBound();
  }
}
