// The client's operations on named keys.
import type { Calls } from "./client-calls.ts";
import * as api from "./keys.ts";
import type { Input } from "./operation.ts";

/** Every method throws Failure: ACCESS_DENIED for a key that may not manage keys, KEY_NOT_FOUND. A reference is an id or a name. */
export class KeyClient {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  /** The answer alone has the key itself. */
  create(request: Input<typeof api.createKey>): Promise<api.CreatedKey> {
    return this.#calls.call(api.createKey, request);
  }

  list(): Promise<api.ShownKey[]> {
    return this.#calls.call(api.listKeys, {});
  }

  get(reference: string): Promise<api.ShownKey> {
    return this.#calls.call(api.getKey, { apiKeyID: reference });
  }

  async revoke(reference: string): Promise<void> {
    await this.#calls.call(api.deleteKey, { apiKeyID: reference });
  }

  /** The secret before it stays valid for `overlapSeconds`. */
  rotate(reference: string, overlapSeconds: number): Promise<api.CreatedKey> {
    return this.#calls.call(api.rotateKey, { apiKeyID: reference, overlapSeconds });
  }
}
