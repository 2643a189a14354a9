// The client's operations on secrets, and the certificate that sandboxes trust for hosts with rules.
import type { Calls } from "./client-calls.ts";
import type { Input } from "./operation.ts";
import * as api from "./secrets.ts";

/** Every method throws Failure: SECRETS_DAMAGED, and SERVER_UNREACHABLE at a gateway. A reference is an id or a name. */
export class SecretClient {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  /** SECRET_EXISTS, DISK_FULL. */
  create(request: Input<typeof api.createSecret>): Promise<api.Secret> {
    return this.#calls.call(api.createSecret, request);
  }

  /** Yields every secret, by name, without its value. */
  list(): AsyncGenerator<api.Secret> {
    return this.#calls.pages(api.listSecrets, {});
  }

  /** SECRET_NOT_FOUND. */
  get(reference: string): Promise<api.Secret> {
    return this.#calls.call(api.getSecret, { secretID: reference });
  }

  /** Replaces the value, also for sandboxes that use it now. SECRET_NOT_FOUND, DISK_FULL. */
  update(reference: string, request: Omit<Input<typeof api.updateSecret>, "secretID">): Promise<api.Secret> {
    return this.#calls.call(api.updateSecret, { secretID: reference, ...request });
  }

  /** SECRET_NOT_FOUND, DISK_FULL. */
  async delete(reference: string): Promise<void> {
    await this.#calls.call(api.deleteSecret, { secretID: reference });
  }

  /** Returns the certificate of the authority for hosts with rules. */
  authority(): Promise<api.EgressAuthority> {
    return this.#calls.call(api.getEgressAuthority, {});
  }
}
