// The reading half of a client connection: parses request heads, buffers pipelined bytes, and sends the proxy's own answers.
import type { Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { ByteBuffer } from "../byte-buffer.ts";
import { type Answer, answer, renderAnswer } from "./answer.ts";
import { BodyScanner } from "./body-scanner.ts";
import type { Decision, RoutedClient } from "./decision.ts";
import { INCOMPLETE, REFUSED } from "./head-lines.ts";
import type { ProxyLimits } from "./limits.ts";
import type { Pipelined } from "./pipelined.ts";
import type { RequestHead } from "./request-head.ts";
import { FREE_READS, type SlowHead, type SlowHeads } from "./slow-heads.ts";
import type { Target } from "./target.ts";
import { BEHIND, HELD, SLOW, TURN, Wire, type WireOwner } from "./wire.ts";

/**
 * head ─▶ body ─▶ waiting ─▶ head     a request's head, its body, the rest of its response
 *   ├──▶ asleep ─▶ head               its target must wake first; then the request is read again from its first byte
 *   └──▶ discard ─▶ head              answered here, or before its body was complete; the rest of the body is discarded
 * body|waiting ─▶ tunnel              after 101
 * any ─▶ linger                       the last answer was sent; further bytes are discarded
 */
export type ClientState = "head" | "body" | "waiting" | "asleep" | "tunnel" | "discard" | "linger";

/** Pipelined requests that are processed without a pause; further ones wait for ticks, which leave the event loop to others. */
const FREE_ROW = 32;

/** Returns a connection's remote address, with mapped IPv4 as plain IPv4, whichever address the listener is bound to. */
export function peerOf(socket: Socket): string {
  return (socket.remoteAddress ?? "unknown").replace(/^::ffff:(?=\d+\.)/, "");
}

/** The parts of the listener that a connection uses. */
export interface ConnectionOwner {
  readonly limits: ProxyLimits;
  readonly head: RequestHead;
  readonly slowHeads: SlowHeads;
  readonly pipelined: Pipelined;
  readonly observe: (kind: number, status: number, ms: number) => void;
  readonly draining: boolean;
  bytesIn: number;
  route(head: RequestHead, client: RoutedClient): Decision;
  forget(client: ClientReader): void;
}

export abstract class ClientReader implements WireOwner, SlowHead {
  readonly wire: Wire;
  /** Header lines that inform upstreams about the client. */
  readonly forwarded: string;
  /** The client's address. */
  readonly peer: string;
  isHead = false;
  isHttp10 = false;
  keepAlive = true;
  /** The start of the current wait: for a request, for the rest of a head, or for the peer to close. */
  since: number;
  /** Counts how often this request was put back to be routed again. */
  rounds = 0;
  /** The target that received the request last and from which the sandbox had moved. */
  movedFrom: Target | undefined;
  protected readonly front: ConnectionOwner;
  protected readonly body = new BodyScanner();
  protected state: ClientState = "head";
  /** An unfinished head, a request that was put back, or pipelined requests. */
  protected pending: ByteBuffer | undefined;
  protected status = 0;
  protected kind = -1;
  protected startedAt = 0;
  #discarded = 0;
  /** Pending bytes whose first request is being read. */
  #reading: ByteBuffer | undefined;
  /** Counts requests that had arrived before the previous answer was sent. */
  #inARow = 0;
  /** Counts reads of the incomplete head; 0 if there is none. */
  #slowReads = 0;

  constructor(front: ConnectionOwner, accepted: Socket, now: number) {
    this.front = front;
    this.since = now;
    this.wire = Wire.adopt(this, accepted);
    this.peer = peerOf(this.wire.socket);
    this.forwarded = `x-forwarded-for: ${this.peer}\r\nx-forwarded-proto: http\r\n`;
  }

  abstract onBytes(bytes: Buffer, length: number): void;
  abstract onEnd(): void;
  abstract onClose(error: NodeJS.ErrnoException | undefined): void;
  abstract onDrain(): void;
  /** Starts a request whose head lies at [start, at) of `bytes`; `end` is where the bytes end. */
  protected abstract begin(head: RequestHead, bytes: Buffer, start: number, at: number, end: number): void;

  get isIdle(): boolean {
    return this.state === "head" && this.pending === undefined;
  }

  get mayGiveWay(): boolean {
    return this.state === "head" && this.rounds === 0;
  }

  protected readHead(bytes: Buffer, start: number, end: number) {
    const { head, limits } = this.front;
    const { pending } = this;
    if (pending !== undefined) {
      if (!pending.appendToHead(bytes, start, end, limits.headBytes)) return this.#awaitHead(pending);
      ({ bytes } = pending);
      start = 0;
      end = bytes.length;
    }
    const bodyAt = head.parse(bytes, start, Math.min(end, start + limits.headBytes));
    if (bodyAt === INCOMPLETE && end - start < limits.headBytes) return this.#awaitHead(pending ?? this.#toPending(bytes, start, end), true);
    this.pending = undefined;
    this.endSlowHead();
    if (bodyAt === REFUSED) return this.refuse(head.problemStatus, `The request is malformed: ${head.problem}`);
    if (bodyAt === INCOMPLETE) return this.refuse(431, `The request head is larger than ${limits.headBytes} bytes`);
    return this.begin(head, bytes, start, bodyAt, end);
  }

  #awaitHead(pending: ByteBuffer, wasRead = false): void {
    this.pending = pending;
    if (wasRead) pending.headIncomplete();
    if (this.#slowReads === 0) {
      this.since = performance.now();
      this.front.slowHeads.enter(this);
      // If too many heads are unfinished, `enter` may have evicted this one.
      if (this.state !== "head") return;
    }
    if (++this.#slowReads < FREE_READS) return;
    this.wire.pause(SLOW);
    this.front.slowHeads.wait(this);
  }

  protected endSlowHead(): void {
    if (this.#slowReads === 0) return;
    this.#slowReads = 0;
    this.front.slowHeads.leave(this);
    this.wire.resume(SLOW);
  }

  goOn(): void {
    this.wire.resume(SLOW);
  }

  giveUp(): void {
    this.refuse(408, "Too many request heads of this client are unfinished; send each head at once");
  }

  /** Buffers pipelined bytes; beyond the bound the connection is not read. */
  protected addPending(bytes: Buffer, start: number, end: number): void {
    if (this.pending === undefined) this.pending = this.#toPending(bytes, start, end);
    else this.pending.append(bytes, start, end);
    if (this.pending.length >= this.front.limits.headBytes) this.wire.pause(HELD);
  }

  #toPending(bytes: Buffer, start: number, end: number): ByteBuffer {
    const reading = this.#reading;
    // Bytes that remain pending are the last ones of the buffer.
    return reading === undefined ? new ByteBuffer(bytes, start, end) : reading.keepLast(end - start);
  }

  /** Prepares for the next request, which may have arrived already. */
  protected next(now: number): void {
    if (this.front.draining) {
      this.linger();
      return;
    }
    this.state = "head";
    this.rounds = 0;
    this.movedFrom = undefined;
    this.since = now;
    this.wire.resume(BEHIND);
    // A client that sends requests without reading the answers must first read them.
    if (this.wire.isBehind) this.wire.pause(HELD);
    else this.resumePending();
  }

  protected resumePending(): void {
    this.wire.resume(HELD);
    if (this.pending === undefined) {
      this.#inARow = 0;
      return;
    }
    // The read is deferred: a long pipeline must not become a deep stack, nor block other connections.
    if (++this.#inARow <= FREE_ROW) {
      setImmediate(() => this.#readPending());
      return;
    }
    // Otherwise more bytes would be read before this connection's tick.
    this.wire.pause(TURN);
    this.front.pipelined.wait(this.peer, () => {
      this.wire.resume(TURN);
      this.#readPending();
    });
  }

  #readPending(): void {
    const { pending } = this;
    if (this.state !== "head" || pending === undefined || this.wire.closed) return;
    this.pending = undefined;
    this.#reading = pending;
    try {
      this.readHead(pending.bytes, 0, pending.length);
    } finally {
      this.#reading = undefined;
    }
  }

  /** Refuses a request after which nothing can be parsed, and ends the connection. */
  protected refuse(status: number, message: string): void {
    this.keepAlive = false;
    this.pending = undefined;
    this.answer(answer(status, message));
  }

  protected answer(given: Answer, bytes?: Buffer, at = 0, end = 0) {
    if (this.front.draining) this.keepAlive = false;
    this.wire.write(renderAnswer(given, this.keepAlive, this.isHead));
    this.front.observe(this.kind, given.status, this.startedAt === 0 ? 0 : performance.now() - this.startedAt);
    this.kind = -1;
    if (!this.keepAlive) return this.linger();
    const now = performance.now();
    if (bytes === undefined && this.body.done) return this.next(now);
    this.discardRest(now);
    if (bytes !== undefined) this.discard(bytes, at, end);
  }

  /** After an answer before the body's end, reads and discards the rest of the body, so that the connection can continue. */
  protected discardRest(now: number): void {
    this.state = "discard";
    this.since = now;
    this.#discarded = 0;
    this.wire.resume(BEHIND);
    this.wire.resume(HELD);
  }

  protected discard(bytes: Buffer, start: number, end: number) {
    const bodyEnd = this.body.scan(bytes, start, end);
    this.#discarded += bodyEnd - start;
    if (bodyEnd < 0 || this.#discarded > this.front.limits.discardBytes) return this.linger();
    if (!this.body.done) return;
    if (bodyEnd < end) this.addPending(bytes, bodyEnd, end);
    this.next(performance.now());
  }

  protected linger(): void {
    this.state = "linger";
    this.pending = undefined;
    this.endSlowHead();
    this.since = performance.now();
    this.wire.end();
    this.wire.resume(BEHIND);
    this.wire.resume(HELD);
  }

  /** Called about once a second; ends waits that have lasted too long. */
  sweep(now: number): void {
    const { limits } = this.front;
    const waited = now - this.since;
    if (this.state === "linger" && waited > limits.lingerMs) this.wire.destroy();
    else if (this.state === "head" && this.pending !== undefined && waited > limits.headMs)
      this.refuse(408, `The request head was not complete within ${limits.headMs} ms`);
    // The client has its answer already.
    else if (this.state === "discard" && waited > limits.headMs) this.wire.destroy();
    else if (this.isIdle && waited > limits.idleMs) this.wire.destroy();
  }
}
