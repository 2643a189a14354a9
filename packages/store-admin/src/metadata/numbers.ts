// Numbers for task ids: each is used only once, across restarts and across servers that share a backend.
import { asFailure, Failure } from "@svc/contract/failures.ts";
import type { Records } from "./records.ts";

const MAX_TRIES = 50;
/** The limit of numbers reserved at once under load; unused ones are lost when the server ends. */
const MAX_AHEAD = 1024;
/** After this many reservations in quick succession, each further one reserves twice as many numbers. */
const SOON = 8;
const SOON_MS = 500;

type Waiting = { resolve(number: number): void; reject(failure: Failure): void };

export class Numbers {
  readonly #records: Records;
  readonly #key: string;
  #waiting: Waiting[] = [];
  #isTaking = false;
  /** Reserved but unused numbers are those from `#next` to `#last`. */
  #next = 1;
  #last = 0;
  #soon = 0;
  #reservedMs = Number.NEGATIVE_INFINITY;

  constructor(records: Records, name: string) {
    this.#records = records;
    this.#key = `numbers/${name}`;
  }

  /** Returns the last number used; 0 before the first. */
  async last(): Promise<number> {
    return Number((await this.#records.get(this.#key))?.value ?? 0);
  }

  /** Returns the next number, which is exclusive once the promise resolves. */
  take(): Promise<number> {
    if (!this.#isTaking && this.#next <= this.#last) return Promise.resolve(this.#next++);
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      if (!this.#isTaking) void this.#takeAll();
    });
  }

  /** All requests that arrive during a reservation share the next one. */
  async #takeAll(): Promise<void> {
    this.#isTaking = true;
    while (this.#waiting.length > 0) {
      for (const { resolve } of this.#waiting.splice(0, this.#last - this.#next + 1)) resolve(this.#next++);
      const together = this.#waiting.length;
      if (together === 0) break;
      // Single reservations leave no gaps, but under load they would take all of the server's time.
      this.#soon = performance.now() - this.#reservedMs < SOON_MS ? this.#soon + 1 : 0;
      const count = Math.max(together, Math.min(MAX_AHEAD, 2 ** Math.max(0, this.#soon - SOON)));
      try {
        this.#next = await this.#reserve(count);
        this.#last = this.#next + count - 1;
        this.#reservedMs = performance.now();
      } catch (error) {
        for (const { reject } of this.#waiting.splice(0, together)) reject(asFailure(error));
      }
    }
    this.#isTaking = false;
  }

  async #reserve(count: number): Promise<number> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const entry = await this.#records.get(this.#key);
      const last = Number(entry?.value ?? 0);
      if ((await this.#records.put(this.#key, String(last + count), entry?.version ?? 0n)) !== undefined) return last + 1;
    }
    throw new Failure("METADATA_UNAVAILABLE", `other servers changed ${this.#key} ${MAX_TRIES} times while this one tried to change it; try again`);
  }
}
