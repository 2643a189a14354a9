// Numbers for task ids: each is given once, also across restarts of the server and between servers of one backend.
import { asFailure, Failure } from "@svc/contract/failures.ts";
import type { Records } from "./records.ts";

const MAX_TRIES = 50;

type Waiting = { resolve(number: number): void; reject(failure: Failure): void };

export class Numbers {
  readonly #records: Records;
  readonly #key: string;
  #waiting: Waiting[] = [];
  #isTaking = false;

  constructor(records: Records, name: string) {
    this.#records = records;
    this.#key = `numbers/${name}`;
  }

  /** The last one that was given; 0 before the first. */
  async last(): Promise<number> {
    return Number((await this.#records.get(this.#key))?.value ?? 0);
  }

  /** The next one: nobody else has it once this resolves. */
  take(): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      if (!this.#isTaking) void this.#takeAll();
    });
  }

  /** All that came while a change was under way share the next one. */
  async #takeAll(): Promise<void> {
    this.#isTaking = true;
    while (this.#waiting.length > 0) {
      const together = this.#waiting;
      this.#waiting = [];
      try {
        const first = await this.#reserve(together.length);
        for (const [at, { resolve }] of together.entries()) resolve(first + at);
      } catch (error) {
        for (const { reject } of together) reject(asFailure(error));
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
