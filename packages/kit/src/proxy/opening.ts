// The beginning of a request as it goes upstream: its head and what has come of its body, kept until the response begins.
import type { Upstream, UpstreamClient } from "./upstream.ts";

/** A body's beginning up to this size is joined to the head, and a request that is whole with it can be sent again. */
const joinBytes = 8 * 1024;

export class Opening {
  #text = "";
  #body: Buffer | undefined;

  /** `text` is the head; [start, end) of `bytes` has come of the body. */
  set(text: string, bytes: Buffer, start: number, end: number): void {
    this.#text = end > start && end - start <= joinBytes ? text + bytes.toString("latin1", start, end) : text;
    this.#body = end - start > joinBytes ? Buffer.from(bytes.subarray(start, end)) : undefined;
  }

  /** Whether sending it once sends it all, so that it can be sent twice. */
  get isSmall(): boolean {
    return this.#body === undefined;
  }

  send(client: UpstreamClient, upstream: Upstream): void {
    upstream.send(client, this.#text);
    if (this.#body === undefined) return;
    upstream.wire.forward(this.#body, 0, this.#body.length, client.wire);
    this.#body = undefined;
  }

  forget(): void {
    this.#text = "";
    this.#body = undefined;
  }
}
