// The beginning of a request as it goes upstream: its head and what has come of its body, kept until the response begins.
import type { Upstream, UpstreamClient } from "./upstream.ts";

/** A body's beginning up to this size is joined to the head, and a request that is whole with it can be sent again. */
const joinBytes = 8 * 1024;

export class Opening {
  #text = "";
  #body: Buffer | undefined;
  /** Whether sending its text once sends all of the request, so that it can be sent twice. */
  isWhole = false;

  /** `text` is the head; [start, end) of `bytes` has come of the body, `complete`: all of it. */
  set(text: string, bytes: Buffer, start: number, end: number, complete: boolean): void {
    this.isWhole = complete && end - start <= joinBytes;
    this.#text = end > start && end - start <= joinBytes ? text + bytes.toString("latin1", start, end) : text;
    this.#body = end - start > joinBytes ? Buffer.from(bytes.subarray(start, end)) : undefined;
  }

  /** Where it is whole: the request as it went upstream. */
  get bytes(): Buffer {
    return Buffer.from(this.#text, "latin1");
  }

  send(client: UpstreamClient, upstream: Upstream): void {
    upstream.send(client, this.#text);
    if (this.#body === undefined) return;
    upstream.wire.forward(this.#body, 0, this.#body.length, client.wire);
    this.#body = undefined;
  }

  forget(): void {
    this.isWhole = false;
    this.#text = "";
    this.#body = undefined;
  }
}
