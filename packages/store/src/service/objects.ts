// Objects over HTTP by key: put, get, exist, remove.
import { fail } from "@svc/contract/failures.ts";
import type { StoreClient } from "../client/store-client.ts";

/** Bounds the values that are transferred at once; further requests wait. */
const MAX_MOVING = 8;
const MAX_WAITING = 1024;

export class Objects {
  readonly #client: StoreClient;
  #moving = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(client: StoreClient) {
    this.#client = client;
  }

  /** A put of an existing key keeps its value. */
  async put(key: string, value: Buffer): Promise<void> {
    await this.#moved(() => this.#client.put(key, value));
  }

  get(key: string): Promise<Buffer | undefined> {
    return this.#moved(() => this.#client.get(key));
  }

  exists(key: string): Promise<boolean> {
    return this.#client.exists(key);
  }

  /** @throws STORE_KEY_NOT_FOUND, STORE_CONFLICT while a reader's lease runs. */
  remove(key: string): Promise<void> {
    return this.#client.remove(key);
  }

  removeAll(): Promise<number> {
    return this.#client.removeAll();
  }

  async #moved<T>(act: () => Promise<T>): Promise<T> {
    if (this.#moving >= MAX_MOVING) {
      if (this.#waiting.length >= MAX_WAITING) fail("TOO_MANY_REQUESTS", `${MAX_WAITING} requests are waiting for their value, the maximum`);
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    } else this.#moving++;
    try {
      return await act();
    } finally {
      // The next waiting request takes over this slot.
      const next = this.#waiting.shift();
      if (next === undefined) this.#moving--;
      else next();
    }
  }
}
