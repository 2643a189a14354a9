// One client's connection: the proxy's parser reads its heads strictly, bodies are read whole, and requests are answered one after the other.
// Longer than 300 lines: one state machine, whose states share what was read and not yet used.

import type { Socket } from "node:net";
import { ByteBuffer } from "@svc/kit/byte-buffer.ts";
import { RequestBody } from "@svc/kit/http/body.ts";
import { INCOMPLETE, REFUSED } from "@svc/kit/proxy/head-lines.ts";
import type { PeerConnection } from "@svc/kit/proxy/peers.ts";
import { type Pipelined, PipelineRow } from "@svc/kit/proxy/pipelined.ts";
import { EXPECT, type RequestHead } from "@svc/kit/proxy/request-head.ts";
import { type SlowHeads, UnfinishedHead } from "@svc/kit/proxy/slow-heads.ts";
import { HELD, Wire, type WireOwner } from "@svc/kit/proxy/wire.ts";
import { type Bodies, HeldBody } from "../bodies.ts";
import { Refusal } from "../refusals.ts";
import { sendRefusal } from "./answers.ts";
import type { ClientLimits } from "./limits.ts";
import { type AnswerCarrier, ClientRequest } from "./request.ts";

/** The parts that all connections share. */
export type ConnectionOwner = {
  readonly limits: ClientLimits;
  readonly head: RequestHead;
  readonly bodies: Bodies;
  readonly slowHeads: SlowHeads;
  readonly pipelined: Pipelined;
  readonly isStopping: boolean;
  readonly dropsKey: boolean;
  /** Called before the body is read. @throws Refusal */
  admit(request: ClientRequest): void;
  /** The request is whole. */
  serve(request: ClientRequest): void;
  /** The router answers it with this error. */
  refused(refusal: Refusal): void;
  closed(connection: ClientConnection): void;
};

const EMPTY = Buffer.alloc(0);

export class ClientConnection implements WireOwner, PeerConnection, AnswerCarrier {
  readonly wire: Wire;
  readonly peer: string;
  keepsAlive = true;
  readonly #owner: ConnectionOwner;
  /**
   * ```
   *      ┌───── the client has read its answer ─────┐
   * ▶ head ─▶ body ─▶ answering ─▶ sending ─────────┴─▶ ending, where input is discarded
   *      ▲                └─▶ queued, if more requests have come ─▶ head
   * ```
   */
  #state: "head" | "body" | "answering" | "sending" | "queued" | "ending" = "head";
  /** When this state began, or the last progress in it; in `head`, when the first byte of an incomplete head came. */
  #sinceMs = performance.now();
  /** An incomplete head, or what follows the request that is being answered. */
  #left: ByteBuffer | undefined;
  #request: ClientRequest | undefined;
  /** A body that one read did not bring whole. */
  #body: RequestBody | undefined;
  #heldBytes = 0;
  #unsentBefore = 0;
  readonly #row: PipelineRow;
  readonly #unfinished: UnfinishedHead;

  constructor(owner: ConnectionOwner, accepted: Socket) {
    this.#owner = owner;
    this.wire = Wire.adopt(this, accepted);
    this.peer = this.wire.socket.remoteAddress ?? "";
    this.#row = new PipelineRow(owner.pipelined, this.peer, this.wire);
    this.#unfinished = new UnfinishedHead(owner.slowHeads, this.peer, this.wire, () =>
      this.#refuse(new Refusal("head_timeout", "too many request heads of this client are unfinished; send each head at once")),
    );
  }

  /** True if it may be closed at a stop: no request has come of which a part is unanswered. */
  get isIdle(): boolean {
    return this.#state === "head" && this.#left === undefined;
  }

  get mayGiveWay(): boolean {
    return this.#state === "head";
  }

  get unsentBytes(): number {
    return this.wire.socket.writableLength;
  }

  /** Ends what makes no progress; the server calls it several times a second. */
  sweep(nowMs: number): void {
    const { headMs, bodyMs, idleMs, lingerMs } = this.#owner.limits;
    const waitedMs = nowMs - this.#sinceMs;
    if (this.#state === "head") {
      if (!this.#unfinished.isBegun) {
        if (waitedMs > idleMs) this.wire.destroy();
      } else if (waitedMs > headMs) this.#refuse(new Refusal("head_timeout", `the request's head was not complete within ${headMs / 1000} s`));
    } else if (this.#state === "body") {
      if (waitedMs > bodyMs) this.#refuse(new Refusal("body_timeout", `the request's body was not complete within ${bodyMs / 1000} s`));
    } else if (this.#state === "sending" || this.#state === "ending") {
      const { unsentBytes } = this;
      if (unsentBytes !== this.#unsentBefore) this.#sinceMs = nowMs;
      this.#unsentBefore = unsentBytes;
      if (waitedMs > (unsentBytes > 0 ? idleMs : lingerMs)) this.wire.destroy();
    }
  }

  onBytes(bytes: Buffer, length: number): void {
    if (this.#state === "head" && this.#left === undefined) this.#read(bytes, 0, length);
    else if (this.#state === "body" && this.#left === undefined) this.#readBody(bytes, 0, length);
    else if (this.#state === "head") this.#readMore(bytes, length);
    else if (this.#state !== "ending") this.#keep(bytes, 0, length);
  }

  /** A client that ends its side while it waits has left: most do so when their program ends. */
  onEnd() {
    if (this.#state === "head" || this.#state === "ending") this.wire.end();
    else this.wire.destroy();
  }

  onClose(): void {
    this.#unfinished.end();
    this.#left = undefined;
    this.#dropBody();
    this.#owner.closed(this);
    const request = this.#request;
    this.#request = undefined;
    request?.gone();
  }

  onDrain(): void {
    if (this.#state === "answering") this.#request?.drained();
    else if (this.#state === "sending") this.#next();
  }

  send(text: string): void {
    this.wire.write(text);
  }

  /** The answer is written; a client that does not read it gets no further one. */
  finished(): void {
    this.#request = undefined;
    if (!this.keepsAlive || this.#owner.isStopping) this.#end();
    else if (this.unsentBytes > this.#owner.limits.unsentBytes) this.#becomes("sending");
    else this.#next();
  }

  destroy(): void {
    this.wire.destroy();
  }

  #becomes(state: "sending" | "ending"): void {
    this.#state = state;
    this.#sinceMs = performance.now();
    this.#unsentBefore = this.unsentBytes;
  }

  #next(): void {
    this.#sinceMs = performance.now();
    if (this.#left === undefined) {
      this.#state = "head";
      this.#row.end();
      return;
    }
    this.#state = "queued";
    this.#row.next(() => {
      if (this.#state !== "queued") return;
      this.#state = "head";
      this.wire.resume(HELD);
      this.#readLeft();
    });
  }

  #keep(bytes: Buffer, start: number, end: number): void {
    if (start >= end) return;
    this.#left ??= new ByteBuffer();
    this.#left.append(bytes, start, end);
    // Reading goes on otherwise, so that the client's end is noticed.
    if (this.#left.length > this.#owner.limits.headBytes) this.wire.pause(HELD);
  }

  /** Reads on at an incomplete head. */
  #readMore(bytes: Buffer, length: number): void {
    const left = this.#left as ByteBuffer;
    if (left.appendToHead(bytes, 0, length, this.#owner.limits.headBytes)) this.#readLeft();
    else this.#unfinished.read();
  }

  #readLeft(): void {
    const left = this.#left as ByteBuffer;
    this.#left = undefined;
    const { bytes } = left;
    this.#read(bytes, 0, bytes.length);
  }

  /** Reads one request; what follows it waits for its answer. */
  #read(bytes: Buffer, at: number, end: number) {
    const { head } = this.#owner;
    const { headBytes } = this.#owner.limits;
    const bodyAt = head.parse(bytes, at, Math.min(end, at + headBytes));
    if (bodyAt === INCOMPLETE && end - at < headBytes) {
      if (!this.#unfinished.isBegun) this.#sinceMs = performance.now();
      this.#left = new ByteBuffer(bytes, at, end);
      this.#left.headIncomplete();
      this.#unfinished.read();
      return;
    }
    this.#unfinished.end();
    if (bodyAt === REFUSED)
      return this.#refuse(new Refusal(head.problemStatus === 431 ? "head_too_large" : "invalid_request", `the request is malformed: ${head.problem}`));
    if (bodyAt === INCOMPLETE) return this.#refuse(new Refusal("head_too_large", `the request's head is larger than ${headBytes} bytes`));
    this.#begin(head, bytes, bodyAt, end);
  }

  #begin(head: RequestHead, bytes: Buffer, at: number, end: number) {
    const { bodies, dropsKey } = this.#owner;
    const { bodyBytes } = head;
    this.#sinceMs = performance.now();
    this.keepsAlive = head.keepsAlive && !this.#owner.isStopping;
    const request = new ClientRequest(head, this, this.peer, this.#sinceMs, dropsKey);
    this.#request = request;
    this.#state = "body";
    const continues = head.isOnly(EXPECT, "100-continue");
    const isWhole = bodyBytes >= 0 && end - at >= bodyBytes;
    try {
      if (bodyBytes > bodies.maxBytes) throw bodies.tooLarge(bodyBytes);
      this.#owner.admit(request);
      if (isWhole) bodies.hold(bodyBytes);
    } catch (error) {
      return this.#refuseRequest(error, isWhole ? bytes : undefined, at + bodyBytes, end);
    }
    if (isWhole) {
      this.#keep(bytes, at + bodyBytes, end);
      // The bytes stand in memory that the next read overwrites.
      const body = bodyBytes === 0 ? EMPTY : Buffer.allocUnsafe(bodyBytes);
      if (bodyBytes > 0) bytes.copy(body, 0, at, at + bodyBytes);
      return this.#serve(body, bodyBytes);
    }
    this.#body = new RequestBody(bodies.maxBytes);
    this.#body.start(bodyBytes);
    if (end > at) this.#readBody(bytes, at, end);
    else if (continues) this.wire.write("HTTP/1.1 100 Continue\r\n\r\n");
  }

  #readBody(bytes: Buffer, at: number, end: number) {
    const { bodies } = this.#owner;
    const body = this.#body as RequestBody;
    const bodyEnd = body.read(bytes, at, end);
    if (bodyEnd < 0) return this.#refuse(new Refusal("invalid_request", "the request is malformed: its body's chunks are invalid"));
    try {
      if (body.isTooLarge) throw bodies.tooLarge(bodies.maxBytes + 1);
      bodies.hold(body.keptBytes - this.#heldBytes);
      this.#heldBytes = body.keptBytes;
    } catch (error) {
      return this.#refuseRequest(error, undefined, 0, 0);
    }
    if (!body.isWhole) return;
    this.#keep(bytes, bodyEnd, end);
    const taken = body.take();
    // A body that one read brought stands in memory that the next read overwrites, and is not counted yet.
    const whole = taken.stays ? taken.body : Buffer.from(taken.body);
    try {
      bodies.hold(whole.length - this.#heldBytes);
    } catch (error) {
      return this.#refuseRequest(error, undefined, 0, 0);
    }
    const held = whole.length;
    this.#body = undefined;
    this.#heldBytes = 0;
    this.#serve(whole, held);
  }

  #serve(body: Buffer, held: number) {
    const request = this.#request as ClientRequest;
    request.body = new HeldBody(body, this.#owner.bodies, held);
    this.#state = "answering";
    this.#owner.serve(request);
  }

  /** Answers a request that was not read to its end. The connection goes on only if its body has come whole with its head, in `bytes`. */
  #refuseRequest(error: unknown, bytes: Buffer | undefined, at: number, end: number) {
    const refusal = error instanceof Refusal ? error : new Refusal("internal", (error as Error).message);
    if (bytes === undefined) return this.#refuse(refusal);
    this.#keep(bytes, at, end);
    this.#state = "answering";
    this.#owner.refused(refusal);
    sendRefusal(this.#request as ClientRequest, refusal);
  }

  /** Answers what cannot be read further, and ends the connection. */
  #refuse(refusal: Refusal): void {
    if (this.#state === "ending" || this.wire.closed) return;
    this.#owner.refused(refusal);
    this.keepsAlive = false;
    this.#unfinished.end();
    this.#dropBody();
    const request = this.#request;
    this.#request = undefined;
    this.#left = undefined;
    if (request !== undefined) sendRefusal(request, refusal);
    else {
      this.wire.write(refusal.answer());
      this.#end();
    }
  }

  /** Bytes that still come are discarded for a moment: closing a socket with unread bytes resets it, and the answer would be lost. */
  #end(): void {
    this.#becomes("ending");
    this.#left = undefined;
    this.wire.end();
    this.wire.resume(HELD);
  }

  #dropBody(): void {
    this.#body = undefined;
    this.#owner.bodies.release(this.#heldBytes);
    this.#heldBytes = 0;
  }
}
