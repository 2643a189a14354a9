// One client connection: reads its requests, asks the router about each, and carries one exchange after another.
// Longer than 300 lines: one state machine, whose states share what was read and not yet used.
import type { Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { ByteBuffer } from "../byte-buffer.ts";
import { type Answer, answer, renderAnswer } from "./answer.ts";
import { BodyScanner } from "./body-scanner.ts";
import type { Carried } from "./carried.ts";
import { type ConnectionOwner, peerOf } from "./connection-owner.ts";
import type { Wait } from "./decision.ts";
import { INCOMPLETE, REFUSED } from "./head-lines.ts";
import { Opening } from "./opening.ts";
import { PipelineRow } from "./pipelined.ts";
import { EXPECT, type RequestHead } from "./request-head.ts";
import { UnfinishedHead } from "./slow-heads.ts";
import type { Target } from "./target.ts";
import type { Trouble, Upstream, UpstreamClient } from "./upstream.ts";
import { BEHIND, HELD, Wire, type WireOwner } from "./wire.ts";

/**
 * head ─▶ body ─▶ waiting ─▶ head     a request's head, its body, the rest of its response
 *   ├──▶ asleep ─▶ head               its target must wake first; then the request is read again from its first byte
 *   └──▶ discard ─▶ head              answered here, or before its body was complete; the rest of the body is discarded
 * body|waiting ─▶ tunnel              after 101
 * any ─▶ linger                       the last answer was sent; further bytes are discarded
 */
type ClientState = "head" | "body" | "waiting" | "asleep" | "tunnel" | "discard" | "linger";

/** Bound on how often a request is forwarded after its target answers that the sandbox has moved. */
const MAX_MOVES = 4;

export class ClientConnection implements WireOwner, UpstreamClient {
  readonly wire: Wire;
  readonly forwarded: string;
  readonly peer: string;
  readonly carried: Carried | undefined;
  isHead = false;
  isHttp10 = false;
  keepAlive = true;
  /** The start of the current wait: for a request, for the rest of a head, or for the peer to close. */
  since: number;
  /** Counts how often this request was put back to be routed again. */
  rounds = 0;
  /** The target that received the request last and from which the sandbox had moved. */
  movedFrom: Target | undefined;
  readonly #front: ConnectionOwner;
  readonly #body = new BodyScanner();
  #state: ClientState = "head";
  /** An unfinished head, a request that was put back, or pipelined requests. */
  #pending: ByteBuffer | undefined;
  #status = 0;
  #kind = -1;
  #startedAt = 0;
  #discarded = 0;
  /** Pending bytes whose first request is being read. */
  #reading: ByteBuffer | undefined;
  readonly #row: PipelineRow;
  readonly #unfinished: UnfinishedHead;
  upstream: Upstream | undefined;
  wantsUpgrade = false;
  addedLines = "";
  #target: Target | undefined;
  readonly #opening = new Opening();
  /** The original request, as long as no byte of it was sent upstream: until then it can be put back. */
  #unsent: Buffer | undefined;
  #mayRepeat = false;
  /** True if the client may be waiting for 100 Continue before it sends its body. */
  #expects = false;
  /** True if the response's framing shows where it ends. */
  #framed = false;
  #wait: Wait | undefined;
  /** The answer to a request that was put back, which replaces routing. */
  #verdict: Answer | undefined;

  constructor(front: ConnectionOwner, accepted: Socket | Carried, now: number) {
    this.#front = front;
    this.since = now;
    this.carried = "stream" in accepted ? accepted : undefined;
    this.wire = "stream" in accepted ? Wire.carry(this, accepted.stream, accepted.reset) : Wire.adopt(this, accepted);
    this.peer = this.carried?.peer ?? peerOf(this.wire.socket);
    this.#row = new PipelineRow(front.pipelined, this.peer, this.wire);
    this.#unfinished = new UnfinishedHead(front.slowHeads, this.peer, this.wire, () =>
      this.#refuse(408, "Too many request heads of this client are unfinished; send each head at once"),
    );
    this.forwarded = `x-forwarded-for: ${this.peer}\r\nx-forwarded-proto: ${this.carried === undefined ? "http" : "https"}\r\n`;
  }

  get isIdle(): boolean {
    return this.#state === "head" && this.#pending === undefined;
  }

  get mayGiveWay(): boolean {
    return this.#state === "head" && this.rounds === 0;
  }

  onBytes(bytes: Buffer, length: number) {
    this.#front.bytesIn += length;
    switch (this.#state) {
      case "head":
        return this.#readHead(bytes, 0, length);
      case "body":
        return this.#passBody(bytes, 0, length);
      case "waiting":
      case "asleep":
        return this.#addPending(bytes, 0, length);
      case "tunnel":
        return this.upstream?.wire.forward(bytes, 0, length, this.wire);
      case "discard":
        return this.#discard(bytes, 0, length);
      default:
        return;
    }
  }

  #readHead(bytes: Buffer, start: number, end: number) {
    const { head, limits } = this.#front;
    const pending = this.#pending;
    if (pending !== undefined) {
      if (!pending.appendToHead(bytes, start, end, limits.headBytes)) return this.#awaitHead(pending);
      ({ bytes } = pending);
      start = 0;
      end = bytes.length;
    }
    const bodyAt = head.parse(bytes, start, Math.min(end, start + limits.headBytes));
    if (bodyAt === INCOMPLETE && end - start < limits.headBytes) return this.#awaitHead(pending ?? this.#toPending(bytes, start, end), true);
    this.#pending = undefined;
    this.#unfinished.end();
    if (bodyAt === REFUSED) return this.#refuse(head.problemStatus, `The request is malformed: ${head.problem}`);
    if (bodyAt === INCOMPLETE) return this.#refuse(431, `The request head is larger than ${limits.headBytes} bytes`);
    return this.#begin(head, bytes, start, bodyAt, end);
  }

  #begin(head: RequestHead, bytes: Buffer, start: number, at: number, end: number) {
    if (this.rounds === 0) this.#startedAt = performance.now();
    this.isHead = head.isHead;
    this.isHttp10 = head.isHttp10;
    this.keepAlive = head.keepsAlive && !this.#front.draining;
    this.#status = 0;
    this.#kind = -1;
    const { bodyBytes } = head;
    this.#body.start(bodyBytes);
    const decision = this.#verdict ?? this.#front.route(head, this);
    if (!("target" in decision)) {
      this.#verdict = undefined;
      if ("leave" in decision) return this.#sleep(decision, bytes, start, end);
      if (head.has(EXPECT) || bodyBytes > this.#front.limits.discardBytes) this.keepAlive = false;
      return this.#answer(decision, bytes, at, end);
    }
    const { target, text } = decision;
    this.#kind = decision.kind;
    this.#target = target;
    this.wantsUpgrade = decision.upgrade && head.upgrades;
    this.addedLines = decision.addedLines ?? "";
    let bodyEnd = at;
    if (bodyBytes !== 0) {
      bodyEnd = this.#body.scan(bytes, at, end);
      if (bodyEnd < 0) return this.#refuse(400, "The request is malformed: its chunk framing is invalid");
    }
    const complete = this.#body.done;
    this.#opening.set(text, bytes, at, bodyEnd, complete, decision.tunnel);
    this.#expects = !complete && head.has(EXPECT);
    this.#state = complete ? "waiting" : "body";
    if (end > bodyEnd) this.#addPending(bytes, bodyEnd, end);
    const kept = decision.tunnel === undefined ? target.takeIdle() : undefined;
    this.#mayRepeat = kept !== undefined && this.#opening.isWhole && head.isRepeatable;
    if (kept === undefined) {
      this.#unsent = Buffer.from(bytes.subarray(start, end));
      return this.#dial(target);
    }
    this.upstream = kept;
    this.#opening.send(this, kept);
  }

  #dial(target: Target): void {
    this.wire.pause(HELD);
    this.upstream = target.dial(this);
  }

  /**
   * Says whether the request can be sent to another node: its kept beginning is all of it, and its rewritten form does not depend on how the
   * client's connection ends.
   */
  get canBeMoved(): boolean {
    return this.#opening.isWhole && this.keepAlive && !this.isHttp10 && this.rounds < MAX_MOVES;
  }

  onReady(upstream: Upstream): void {
    this.#unsent = undefined;
    this.#opening.send(this, upstream);
    this.wire.resume(HELD);
  }

  /** Keeps the original request. Bytes after it are read up to the bound, so that a disconnect is noticed. */
  #sleep(wait: Wait, bytes: Buffer, start: number, end: number): void {
    this.#wait = wait;
    this.#kind = wait.kind;
    this.rounds++;
    this.#state = "asleep";
    this.#addPending(bytes, start, end);
  }

  /** Ends the wait: the request is routed again, or answered with `verdict`. */
  proceed(verdict?: Answer): void {
    if (this.#state !== "asleep") return;
    this.#wait = undefined;
    this.#verdict = verdict;
    this.#readAgain();
  }

  #putBack(): void {
    this.#opening.forget();
    this.rounds++;
    this.#readAgain();
  }

  #readAgain(): void {
    this.#state = "head";
    this.#kind = -1;
    this.since = performance.now();
    this.#resumePending();
  }

  #passBody(bytes: Buffer, start: number, end: number) {
    const bodyEnd = this.#body.scan(bytes, start, end);
    if (bodyEnd < 0) {
      this.upstream?.destroy();
      this.upstream = undefined;
      if (this.#status !== 0) return this.wire.reset();
      return this.#refuse(400, "The request is malformed: its chunk framing is invalid");
    }
    this.upstream?.wire.forward(bytes, start, bodyEnd, this.wire);
    if (!this.#body.done) return;
    this.#state = "waiting";
    this.wire.settle();
    if (bodyEnd < end) this.#addPending(bytes, bodyEnd, end);
  }

  onResponseHead(status: number, framed: boolean): void {
    this.#status = status;
    this.#framed = framed;
    this.#opening.forget();
    this.#mayRepeat = false;
    const { draining, limits } = this.#front;
    // The answer came before the body's end: if the rest may never come or is too long to discard, the answer closes the connection.
    if (draining || (!this.#body.done && (this.#expects || this.#body.missing > limits.discardBytes))) this.keepAlive = false;
  }

  onResponseEnd(upstream: Upstream, reusable: boolean): void {
    const now = performance.now();
    this.upstream = undefined;
    this.#front.observe(this.#kind, this.#status, now - this.#startedAt);
    this.#kind = -1;
    const bodyDone = this.#body.done;
    if (reusable && bodyDone) upstream.release(now);
    else upstream.destroy();
    if (!this.keepAlive) this.#linger();
    else if (bodyDone) this.#next(now);
    else this.#discardRest(now);
  }

  onTunnel(): void {
    this.#state = "tunnel";
    const pending = this.#pending;
    this.#pending = undefined;
    this.wire.resume(HELD);
    if (pending !== undefined) this.upstream?.wire.forward(pending.bytes, 0, pending.length, this.wire);
  }

  onTunnelEnd(): void {
    this.upstream = undefined;
    this.wire.end();
  }

  onTrouble(trouble: Trouble, detail: string) {
    this.upstream = undefined;
    const target = this.#target as Target;
    // The client has only a part and must notice: if the framing does not show it, a reset does. A reset may destroy bytes that the client has
    // not read yet, so it is the second choice.
    if (this.#status !== 0) return this.#framed ? this.#linger() : this.wire.reset();
    if (trouble === "moved") {
      this.movedFrom = target;
      const sent = this.#opening.bytes;
      const behind = this.#pending;
      this.#pending = new ByteBuffer(sent, 0, sent.length);
      if (behind !== undefined) this.#pending.append(behind.bytes, 0, behind.length);
      return this.#putBack();
    }
    if (trouble === "closed" && this.#mayRepeat) {
      this.#mayRepeat = false;
      return this.#dial(target);
    }
    this.#opening.forget();
    this.wire.resume(BEHIND);
    const unsent = this.#unsent;
    this.#unsent = undefined;
    if (trouble === "dropped" && unsent !== undefined) {
      this.#pending = new ByteBuffer(unsent, 0, unsent.length);
      return this.#putBack();
    }
    this.wire.resume(HELD);
    // A client that waits for 100 Continue may take the answer as a refusal, and send its next request in place of the body.
    if (this.#expects && !this.#body.done) this.keepAlive = false;
    this.#answer(target.policy.answerFor(trouble, detail));
  }

  #awaitHead(pending: ByteBuffer, wasRead = false): void {
    this.#pending = pending;
    if (wasRead) pending.headIncomplete();
    if (!this.#unfinished.isBegun) this.since = performance.now();
    this.#unfinished.read();
  }

  /** Buffers pipelined bytes; beyond the bound the connection is not read. */
  #addPending(bytes: Buffer, start: number, end: number): void {
    if (this.#pending === undefined) this.#pending = this.#toPending(bytes, start, end);
    else this.#pending.append(bytes, start, end);
    if (this.#pending.length >= this.#front.limits.headBytes) this.wire.pause(HELD);
  }

  #toPending(bytes: Buffer, start: number, end: number): ByteBuffer {
    const reading = this.#reading;
    // Bytes that remain pending are the last ones of the buffer.
    return reading === undefined ? new ByteBuffer(bytes, start, end) : reading.keepLast(end - start);
  }

  /** Prepares for the next request, which may have arrived already. */
  #next(now: number): void {
    if (this.#front.draining) {
      this.#linger();
      return;
    }
    this.#state = "head";
    this.rounds = 0;
    this.movedFrom = undefined;
    this.since = now;
    this.wire.resume(BEHIND);
    // A client that sends requests without reading the answers must first read them.
    if (this.wire.isBehind) this.wire.pause(HELD);
    else this.#resumePending();
  }

  #resumePending(): void {
    this.wire.resume(HELD);
    if (this.#pending === undefined) this.#row.end();
    else this.#row.next(() => this.#readPending());
  }

  #readPending(): void {
    const pending = this.#pending;
    if (this.#state !== "head" || pending === undefined || this.wire.closed) return;
    this.#pending = undefined;
    this.#reading = pending;
    try {
      this.#readHead(pending.bytes, 0, pending.length);
    } finally {
      this.#reading = undefined;
    }
  }

  /** Refuses a request after which nothing can be parsed, and ends the connection. */
  #refuse(status: number, message: string): void {
    this.keepAlive = false;
    this.#pending = undefined;
    this.#answer(answer(status, message));
  }

  #answer(given: Answer, bytes?: Buffer, at = 0, end = 0) {
    if (this.#front.draining) this.keepAlive = false;
    this.wire.write(renderAnswer(given, this.keepAlive, this.isHead));
    this.#front.observe(this.#kind, given.status, this.#startedAt === 0 ? 0 : performance.now() - this.#startedAt);
    this.#kind = -1;
    if (!this.keepAlive) return this.#linger();
    const now = performance.now();
    if (bytes === undefined && this.#body.done) return this.#next(now);
    this.#discardRest(now);
    if (bytes !== undefined) this.#discard(bytes, at, end);
  }

  /** After an answer before the body's end, reads and discards the rest of the body, so that the connection can continue. */
  #discardRest(now: number): void {
    this.#state = "discard";
    this.since = now;
    this.#discarded = 0;
    this.wire.resume(BEHIND);
    this.wire.resume(HELD);
  }

  #discard(bytes: Buffer, start: number, end: number) {
    const bodyEnd = this.#body.scan(bytes, start, end);
    this.#discarded += bodyEnd - start;
    if (bodyEnd < 0 || this.#discarded > this.#front.limits.discardBytes) return this.#linger();
    if (!this.#body.done) return;
    if (bodyEnd < end) this.#addPending(bytes, bodyEnd, end);
    this.#next(performance.now());
  }

  #linger(): void {
    this.#state = "linger";
    this.#pending = undefined;
    this.#unfinished.end();
    this.since = performance.now();
    this.wire.end();
    this.wire.resume(BEHIND);
    this.wire.resume(HELD);
  }

  /** Called about once a second; ends waits that have lasted too long. */
  sweep(now: number): void {
    const wait = this.#wait;
    if (this.#state === "asleep" && wait !== undefined) {
      if (now - this.#startedAt <= this.#front.limits.wakeMs) return;
      wait.leave(this);
      this.proceed(wait.tooLate());
      return;
    }
    const { limits } = this.#front;
    const waited = now - this.since;
    if (this.#state === "linger" && waited > limits.lingerMs) this.wire.destroy();
    else if (this.#state === "head" && this.#pending !== undefined && waited > limits.headMs)
      this.#refuse(408, `The request head was not complete within ${limits.headMs} ms`);
    // The client has its answer already.
    else if (this.#state === "discard" && waited > limits.headMs) this.wire.destroy();
    else if (this.isIdle && waited > limits.idleMs) this.wire.destroy();
  }

  onEnd(): void {
    if (this.#state === "tunnel") this.upstream?.wire.end();
    else if ((this.#state === "head" && this.rounds === 0) || this.#state === "discard") this.wire.end();
    else this.wire.destroy();
  }

  onClose(error: NodeJS.ErrnoException | undefined): void {
    this.#wait?.leave(this);
    this.#wait = undefined;
    if (this.#kind >= 0) this.#front.observe(this.#kind, this.#status, performance.now() - this.#startedAt);
    if (error === undefined && this.#state === "tunnel") this.upstream?.abandon();
    else this.upstream?.destroy();
    this.upstream = undefined;
    this.#pending = undefined;
    this.#unfinished.end();
    this.#unsent = undefined;
    this.#opening.forget();
    this.#front.forget(this);
  }

  onDrain(): void {
    this.upstream?.wire.resume(BEHIND);
    if (this.#state === "head" && this.wire.isPaused(HELD)) this.#resumePending();
  }
}
