// So many at once; the others wait their turn, up to a bound.
import { fail } from "@svc/contract/failures.ts";

export class Slots {
  readonly #most: number;
  readonly #mostWaiting: number;
  readonly #waiting: (() => void)[] = [];
  #taken = 0;

  constructor(most: number, mostWaiting: number) {
    this.#most = most;
    this.#mostWaiting = mostWaiting;
  }

  /** @throws TOO_MANY_REQUESTS where too many wait. */
  async run<T>(act: () => Promise<T>): Promise<T> {
    if (this.#taken < this.#most) this.#taken++;
    else if (this.#waiting.length >= this.#mostWaiting) fail("TOO_MANY_REQUESTS", `${this.#mostWaiting} others wait already; try again later`);
    // The slot of the one that ends is this one's.
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await act();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#taken--;
      else next();
    }
  }
}
