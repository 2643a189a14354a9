// Objects over HTTP by key: put, get, exist, remove.
import { Semaphore } from "@svc/kit/semaphore.ts";
import type { StoreClient } from "../client/store-client.ts";

/** Bounds the values that are transferred at once; further requests wait. */
const MAX_MOVING = 8;
const MAX_WAITING = 1024;

export class Objects {
  readonly #client: StoreClient;
  readonly #moving = new Semaphore(MAX_MOVING, MAX_WAITING);

  constructor(client: StoreClient) {
    this.#client = client;
  }

  /** A put of an existing key keeps its value. */
  async put(key: string, value: Buffer): Promise<void> {
    await this.#moving.run(() => this.#client.put(key, value));
  }

  get(key: string): Promise<Buffer | undefined> {
    return this.#moving.run(() => this.#client.get(key));
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
}
