// A semaphore: a bounded number of calls run at once, and the others wait in order, up to a second bound.
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

  /** @throws TOO_MANY_REQUESTS where too many calls wait. */
  async run<T>(act: () => Promise<T>): Promise<T> {
    if (this.#taken < this.#most) this.#taken++;
    else if (this.#waiting.length >= this.#mostWaiting) fail("TOO_MANY_REQUESTS", `${this.#mostWaiting} others wait already; try again later`);
    // The call that ends passes its slot to this one.
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
