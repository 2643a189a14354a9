// The client's operations on previews, the names under which ports of sandboxes are reached.
import type { Calls } from "./client-calls.ts";
import type { Input } from "./operation.ts";
import * as api from "./previews.ts";

export class PreviewClient {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  /** SANDBOX_NOT_FOUND, PREVIEW_EXISTS if another port or sandbox has the name, TOO_MANY_REQUESTS, DISK_FULL. */
  create(request: Input<typeof api.createPreview>): Promise<api.Preview> {
    return this.#calls.call(api.createPreview, request);
  }

  /** Returns all previews, or those of one sandbox, by name. */
  list(sandboxID?: string): Promise<api.Preview[]> {
    return this.#calls.call(api.listPreviews, { sandboxID });
  }

  /** PREVIEW_NOT_FOUND. */
  get(name: string): Promise<api.Preview> {
    return this.#calls.call(api.getPreview, { name });
  }

  /** PREVIEW_NOT_FOUND. */
  async delete(name: string): Promise<void> {
    await this.#calls.call(api.deletePreview, { name });
  }
}
