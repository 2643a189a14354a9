// One connection to a target: opens it, parses response heads, passes bodies on, and returns to the pool.
// Longer than 300 lines: one state machine, whose states share one connection.

import { ByteBuffer } from "../byte-buffer.ts";
import { BodyScanner } from "./body-scanner.ts";
import { INCOMPLETE, REFUSED } from "./head-lines.ts";
import type { ProxyLimits } from "./limits.ts";
import type { Pace } from "./pace.ts";
import type { ResponseHead } from "./response-head.ts";
import { BEHIND, type Dial, PACED, Wire, type WireOwner } from "./wire.ts";

/**
 * One way to a target; with `preface`, that request is sent first, and its 101 opens a raw connection to the target. `isRelay`: `connect` leads
 * through a relay by itself.
 */
export type Way = { readonly connect: Dial; readonly preface?: string; readonly isRelay?: true };

/** The reason why a request got no response; `dropped` if its target was removed, `moved` if its sandbox is on another node. */
export type Trouble = "refused" | "unreachable" | "closed" | "malformed" | "dropped" | "moved";

/** The target of a connection, as the connection sees it. */
export interface UpstreamOwner {
  readonly pool: { readonly limits: ProxyLimits; readonly head: ResponseHead; bytesIn: number };
  /** Called when `way` led to an open connection. */
  readonly policy: { reached(way: Way): void; readonly saysMoved: boolean; readonly pace?: Pace | undefined };
  putIdle(upstream: Upstream): void;
  forget(upstream: Upstream): void;
}

/** The request's side of an exchange, as its upstream sees it. */
export interface UpstreamClient {
  readonly wire: Wire;
  upstream: Upstream | undefined;
  readonly isHead: boolean;
  readonly isHttp10: boolean;
  readonly wantsUpgrade: boolean;
  readonly addedLines: string;
  /** True if the request can be routed again although all of it was sent. */
  readonly canBeMoved: boolean;
  /** True if the client's connection is kept after this response; cleared if only the connection's end ends the response. */
  keepAlive: boolean;
  onReady(upstream: Upstream): void;
  /** The final response's head is about to be sent; `framed`: the response itself shows where it ends. */
  onResponseHead(status: number, framed: boolean): void;
  onResponseEnd(upstream: Upstream, reusable: boolean): void;
  onTunnel(): void;
  /** Both directions of the upstream's side of a tunnel have ended in order. */
  onTunnelEnd(): void;
  /** No complete response will arrive. */
  onTrouble(trouble: Trouble, detail: string): void;
}

type State = "dialling" | "opening" | "idle" | "head" | "body" | "tunnel" | "closed";

/** The first part of a body up to this size is written together with its head. */
const joinBytes = 8 * 1024;
const MISDIRECTED = 421;
/** Bound on interim responses (100, 103) before the final one. */
const maxInterim = 32;

export class Upstream implements WireOwner {
  readonly target: UpstreamOwner;
  readonly wire: Wire;
  client: UpstreamClient | undefined;
  /** True if it carried a request before: only then may a close without a response mean that the idle connection had timed out. */
  reused = false;
  idleSince = 0;
  #state: State = "dialling";
  /** An incomplete head. */
  #pending: ByteBuffer | undefined;
  #interim = 0;
  #reusable = false;
  readonly #way: Way;
  readonly #body = new BodyScanner();
  readonly #failed: (trouble: Trouble, detail: string) => void;
  #timer: NodeJS.Timeout | undefined;

  constructor(target: UpstreamOwner, way: Way, client: UpstreamClient, failed: (trouble: Trouble, detail: string) => void) {
    this.target = target;
    this.client = client;
    this.#way = way;
    this.#failed = failed;
    const { connectMs } = target.pool.limits;
    const late = () => this.#fail("unreachable", `no connection within ${connectMs} ms`);
    // The timeout has two halves: after a suspend, timers fire before sockets are polled, and the connection may be established by then.
    this.#timer = setTimeout(() => {
      this.#timer = setTimeout(late, connectMs / 2);
    }, connectMs / 2);
    this.wire = Wire.dial(this, way.connect);
  }

  get isResponding(): boolean {
    return this.#state === "body" || this.#state === "tunnel";
  }

  /** Begins an exchange: `text` is the request's head, with or without the first part of its body. */
  send(client: UpstreamClient, text: string): void {
    this.client = client;
    this.#state = "head";
    this.#interim = 0;
    this.wire.write(text);
  }

  /** Carries the client's bytes as they are. */
  join(client: UpstreamClient): void {
    this.client = client;
    this.#state = "tunnel";
  }

  /** Returns the connection to the pool, ready for another request. */
  release(now: number): void {
    if (this.#state === "closed") return;
    // The target answered before it took the whole request, whose rest must not mix with the next one.
    if (this.wire.socket.writableLength > 0) {
      this.destroy();
      return;
    }
    this.#state = "idle";
    this.client = undefined;
    this.reused = true;
    this.idleSince = now;
    this.wire.resume(BEHIND);
    this.wire.resume(PACED);
    this.wire.settle();
    this.target.putIdle(this);
  }

  /** The client of a tunnel is gone; its last bytes are still delivered. */
  abandon(): void {
    this.client = undefined;
    if (this.#state === "tunnel" && this.wire.socket.writableEnded) return;
    this.destroy();
  }

  destroy(): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.client = undefined;
    this.#pending = undefined;
    clearTimeout(this.#timer);
    this.target.forget(this);
    this.wire.destroy();
  }

  onConnect() {
    if (this.#state !== "dialling") return;
    if (this.#way.preface === undefined) return this.#opened();
    this.#state = "opening";
    this.wire.write(this.#way.preface);
  }

  #opened(): void {
    clearTimeout(this.#timer);
    this.target.policy.reached(this.#way);
    this.client?.onReady(this);
  }

  onBytes(bytes: Buffer, length: number) {
    this.target.pool.bytesIn += length;
    if (this.target.policy.pace !== undefined) this.wire.keepPace(this.target.policy.pace, length);
    switch (this.#state) {
      case "head":
        return this.#readHead(bytes, 0, length);
      case "body":
        return this.#passBody(bytes, 0, length);
      case "tunnel":
        return this.client?.wire.forward(bytes, 0, length, this.wire);
      case "opening":
        return this.#readOpening(bytes, length);
      case "idle":
        // No request is open, so these bytes belong to no response.
        return this.destroy();
      default:
        return;
    }
  }

  #readOpening(bytes: Buffer, length: number): void {
    const { head, limits } = this.target.pool;
    const pending = this.#pending ?? new ByteBuffer(bytes, 0, 0);
    if (!pending.appendToHead(bytes, 0, length, limits.headBytes)) {
      this.#pending = pending;
      return;
    }
    const all = pending.bytes;
    const end = head.parse(all, 0, all.length, false);
    if (end === INCOMPLETE && all.length <= limits.headBytes) {
      pending.headIncomplete();
      this.#pending = pending;
      return;
    }
    this.#pending = undefined;
    if (end > 0 && head.status === 101 && end === all.length) this.#opened();
    else this.#fail("refused", end > 0 ? `the relay answered ${head.status}` : "the relay's answer is malformed");
  }

  #readHead(bytes: Buffer, start: number, end: number) {
    const { head, limits } = this.target.pool;
    const client = this.client as UpstreamClient;
    const pending = this.#pending;
    if (pending !== undefined) {
      if (!pending.appendToHead(bytes, start, end, limits.headBytes)) return;
      this.#pending = undefined;
      ({ bytes } = pending);
      start = 0;
      end = bytes.length;
    }
    while (start < end) {
      const bodyAt = head.parse(bytes, start, Math.min(end, start + limits.headBytes), client.isHead);
      if (bodyAt === INCOMPLETE) {
        if (end - start >= limits.headBytes) return this.#fail("malformed", `its head is larger than ${limits.headBytes} bytes`);
        this.#pending = new ByteBuffer(bytes, start, end);
        this.#pending.headIncomplete();
        return;
      }
      if (bodyAt === REFUSED) return this.#fail("malformed", head.problem);
      const { status } = head;
      if (status >= 200 || status === 101) return this.#begin(bytes, start, bodyAt, end);
      if (++this.#interim > maxInterim) return this.#fail("malformed", `it sent more than ${maxInterim} interim responses`);
      if (!client.isHttp10) client.wire.write(head.text);
      start = bodyAt;
    }
  }

  #begin(bytes: Buffer, start: number, bodyAt: number, end: number) {
    const head = this.target.pool.head;
    const client = this.client as UpstreamClient;
    if (head.status === 101) {
      if (!client.wantsUpgrade) return this.#fail("malformed", "it switched protocols without being asked");
      this.#state = "tunnel";
      client.onResponseHead(101, false);
      client.wire.write(head.rewrite(true));
      client.onTunnel();
      client.wire.forward(bytes, bodyAt, end, this.wire);
      return;
    }
    if (head.status === MISDIRECTED && this.target.policy.saysMoved && client.canBeMoved && isMoved(head.text)) return this.#fail("moved", "");
    if (client.isHttp10 && head.bodyBytes === -1) return this.#fail("malformed", "it answered HTTP/1.0 with a chunked body");
    const body = this.#body;
    body.start(head.bodyBytes);
    const bodyEnd = body.scan(bytes, bodyAt, end);
    if (bodyEnd < 0) return this.#fail("malformed", "its chunk framing is invalid");
    if (body.endsWithConnection) client.keepAlive = false;
    this.#reusable = head.keepsAlive && !client.isHttp10 && bodyEnd === end;
    this.#state = "body";
    client.onResponseHead(head.status, !body.endsWithConnection);
    if (client.keepAlive && head.passesVerbatim && client.addedLines === "") client.wire.forward(bytes, start, bodyEnd, this.wire);
    else {
      const rewritten = head.rewrite(client.keepAlive, client.addedLines);
      const joins = bodyEnd - bodyAt <= joinBytes;
      client.wire.write(joins ? rewritten + bytes.toString("latin1", bodyAt, bodyEnd) : rewritten);
      if (!joins) client.wire.forward(bytes, bodyAt, bodyEnd, this.wire);
    }
    if (body.done) this.#finish();
  }

  #passBody(bytes: Buffer, start: number, end: number) {
    const client = this.client as UpstreamClient;
    const bodyEnd = this.#body.scan(bytes, start, end);
    if (bodyEnd < 0) return this.#fail("malformed", "its chunk framing is invalid");
    client.wire.forward(bytes, start, bodyEnd, this.wire);
    if (bodyEnd < end) this.#reusable = false;
    if (this.#body.done) this.#finish();
  }

  #finish(): void {
    const client = this.client as UpstreamClient;
    this.client = undefined;
    // Until the owner decides, nothing may arrive: in this state bytes destroy the connection.
    this.#state = "idle";
    client.onResponseEnd(this, this.#reusable);
  }

  onEnd(): void {
    if (this.#state === "tunnel") this.client?.wire.end();
    else if (this.#state === "body" && this.#body.endsWithConnection) {
      this.#reusable = false;
      this.#finish();
    } else this.#fail("closed", "it closed the connection before its response was whole");
  }

  onClose(error: NodeJS.ErrnoException | undefined): void {
    if (this.#state === "dialling") {
      const refused = error?.code === "ECONNREFUSED" || error?.code === "ENOENT";
      this.#fail(refused ? "refused" : "unreachable", error?.message ?? "the connection was closed");
    } else if (this.#state === "tunnel" && error === undefined) {
      // Both directions ended in order, but the client's side still has bytes to deliver.
      const { client } = this;
      this.destroy();
      client?.onTunnelEnd();
    } else if (this.#state !== "closed") this.#fail("closed", error?.message ?? "it closed the connection");
  }

  onDrain(): void {
    this.client?.wire.resume(BEHIND);
  }

  #fail(trouble: Trouble, detail: string) {
    const { client } = this;
    const wasOpening = this.#state === "dialling" || this.#state === "opening";
    this.destroy();
    if (client === undefined) return;
    if (!wasOpening) return client.onTrouble(trouble, detail);
    this.client = client;
    this.#failed(trouble === "closed" ? "refused" : trouble, detail);
    this.client = undefined;
  }
}

const isMoved = (head: string) => /\r\nx-svc-reason: *moved\r\n/i.test(head);
