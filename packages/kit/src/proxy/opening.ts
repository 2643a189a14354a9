// The beginning of a request as sent upstream: its head and the first part of its body, kept until the response begins.
import type { Upstream, UpstreamClient } from "./upstream.ts";

/** Bound on a body's first part that is joined to the head; a request that is complete with it can be sent again. */
const joinBytes = 8 * 1024;

const SWITCHED = 101;

export class Opening {
  #text = "";
  #body: Buffer | undefined;
  #tunnel: string | undefined;
  /** True if the text is the complete request, so that it can be sent twice. */
  isWhole = false;

  /**
   * `text` is the head; [start, end) of `bytes` is the body so far, and `complete` says that it is all of it. With `tunnel`, nothing is sent: the
   * client gets this answer, and both sides are joined.
   */
  set(text: string, bytes: Buffer, start: number, end: number, complete: boolean, tunnel?: string): void {
    this.#tunnel = tunnel;
    this.isWhole = complete && end - start <= joinBytes;
    this.#text = end > start && end - start <= joinBytes ? text + bytes.toString("latin1", start, end) : text;
    this.#body = end - start > joinBytes ? Buffer.from(bytes.subarray(start, end)) : undefined;
  }

  /** The request as sent upstream; only valid if `isWhole`. */
  get bytes(): Buffer {
    return Buffer.from(this.#text, "latin1");
  }

  send(client: UpstreamClient, upstream: Upstream): void {
    if (this.#tunnel !== undefined) {
      upstream.join(client);
      client.wire.write(this.#tunnel);
      client.onResponseHead(SWITCHED, false);
      client.onTunnel();
      return;
    }
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
