// One client's connection: parses heads strictly, collects bodies in a growing buffer, and sends one answer after the other.
import type { Socket } from "node:net";
import { BodyScanner } from "@svc/kit/proxy/body-scanner.ts";
import { INCOMPLETE, REFUSED } from "@svc/kit/proxy/head-lines.ts";
import { CHUNKED, CONNECTION, EXPECT } from "@svc/kit/proxy/request-head.ts";
import { BEHIND, HELD, Wire, type WireOwner } from "@svc/kit/proxy/wire.ts";
import { headOf } from "./answer-head.ts";
import { GrowingBuffer, joinChunks } from "./growing-buffer.ts";
import type { Answer, Request } from "./http-exchange.ts";
import { ACCEPT, API_KEY, AUTHORIZATION, bodyRefused, CONTENT_ENCODING, CONTENT_TYPE, head } from "./http-head.ts";
import { BODY_MS, HEAD_MS, HEAD_TOO_LARGE, IDLE_MS, KEPT_BUFFER_BYTES, LINGER_MS, MAX_DRAINED_BYTES, MAX_HEAD_BYTES, TEXT_BYTES } from "./http-limits.ts";
import { Refusal } from "./refusal.ts";

export type Front = {
  readonly maxBodyBytes: number;
  draining: boolean;
  /** Returns the answer; a failure is an answer as well. */
  answer(request: Request): Answer | Promise<Answer>;
  /** Returns the answer to a request that could not be read. */
  refuse(refusal: Refusal): Answer;
  /** Counts body bytes that are kept (below 0: released); other connections may be ended to free memory. */
  keep(connection: Connection, bytes: number): void;
  answered(connection: Connection): void;
  closed(connection: Connection): void;
};

export class Connection implements WireOwner {
  readonly #front: Front;
  readonly #wire: Wire;
  readonly #peer: string;
  readonly #scanner = new BodyScanner();
  /** Bytes of an incomplete head, or of requests that follow the one being answered. */
  readonly #left = new GrowingBuffer();
  readonly #body = new GrowingBuffer();
  #request: Omit<Request, "body" | "bodyStays"> | undefined;
  #chunked = false;
  #keepAlive = true;
  #answering = false;
  #ended = false;
  /** The last answer was given; further input is discarded. */
  #over = false;
  #drained = 0;
  /** When the current head or body began. */
  begunMs = 0;

  constructor(front: Front, accepted: Socket) {
    this.#front = front;
    this.#peer = accepted.remoteAddress ?? "";
    this.#wire = Wire.adopt(this, accepted);
    this.#wire.socket.setTimeout(IDLE_MS, () => this.#wire.destroy());
  }

  get idle(): boolean {
    return !this.#answering && this.#request === undefined;
  }

  /** True while a request is being answered, or the client has not read its answer yet. */
  get busy(): boolean {
    return this.#answering || this.#wire.isPaused(BEHIND);
  }

  get bodyBytes(): number {
    return this.#body.size;
  }

  destroy(): void {
    this.#wire.destroy();
  }

  /** Refuses the current request: it takes too long, or too much memory while others wait. */
  giveUp(refusal: Refusal, status: number): void {
    if (this.busy || this.#over || this.#wire.closed) return;
    this.#refuse(refusal, status);
  }

  /** Ends a request that is not complete in time, and returns whether it did. */
  endIfLate(nowMs: number): boolean {
    if (this.busy || this.#over || (this.#request === undefined && this.#left.size === 0)) return false;
    const limitMs = this.#request === undefined ? HEAD_MS : BODY_MS;
    if (nowMs - this.begunMs <= limitMs) return false;
    this.giveUp(new Refusal("timeout", `the ${this.#request === undefined ? "head" : "body"} was not whole within ${limitMs / 1000} s`), 408);
    return true;
  }

  onBytes(bytes: Buffer, length: number): void {
    if (this.#over) {
      this.#drained += length;
      if (this.#drained > MAX_DRAINED_BYTES) this.#wire.pause(HELD);
      return;
    }
    if (this.busy) {
      // The wire delivered these bytes before the pause took effect.
      this.#left.append(bytes, 0, length);
      return;
    }
    if (this.#left.size === 0) {
      if (this.#request === undefined) this.begunMs = performance.now();
      this.#read(bytes, length);
      return;
    }
    const before = this.#left.size;
    this.#left.append(bytes, 0, length);
    // An incomplete head is not parsed again for each of its bytes.
    if (this.#left.endsHead(Math.max(0, before - 3)) || this.#left.size > MAX_HEAD_BYTES) this.#readLeft();
  }

  onEnd(): void {
    this.#ended = true;
    if (!this.#answering) this.#wire.end();
  }

  onClose(): void {
    this.#front.keep(this, -this.#body.size);
    this.#front.closed(this);
  }

  onDrain(): void {
    if (!this.#wire.isPaused(BEHIND) || this.#wire.isBehind) return;
    this.#wire.resume(BEHIND);
    this.begunMs = performance.now();
    this.#readLeft();
  }

  #readLeft(): void {
    if (this.#left.size === 0 || this.busy || this.#over) return;
    const all = this.#left.take();
    this.#read(all, all.length);
  }

  #read(bytes: Buffer, end: number): void {
    let at = 0;
    while (at < end && !this.#wire.closed && !this.#over) {
      if (this.busy) {
        this.#left.append(bytes, at, end);
        return;
      }
      if (this.#request === undefined) {
        const body = head.parse(bytes, at, end);
        if (body === INCOMPLETE && end - at <= MAX_HEAD_BYTES) {
          this.#left.append(bytes, at, end);
          return;
        }
        // One read may bring a whole head that is larger than the limit.
        if (body === INCOMPLETE || body === REFUSED || body - at > MAX_HEAD_BYTES) {
          this.#refuse(body === REFUSED ? new Refusal("invalid_value", head.problem) : new Refusal("too_large", HEAD_TOO_LARGE, {}, "HEADERS_TOO_LARGE"));
          return;
        }
        at = body;
        if (!this.#begin()) return;
      }
      const bodyEnd = this.#scanner.scan(bytes, at, end);
      if (bodyEnd < 0) {
        this.#refuse(new Refusal("invalid_value", "the body's chunked encoding is invalid"));
        return;
      }
      // A body that lies completely in the bytes just read is used in place.
      const whole = this.#body.size === 0 && this.#scanner.done ? bytes.subarray(at, bodyEnd) : undefined;
      if (whole === undefined) {
        const most = this.#front.maxBodyBytes;
        if (this.#body.size + bodyEnd - at > most) {
          this.#refuse(new Refusal("too_large", `the body is larger than ${most} bytes (indexer.max_body_bytes)`));
          return;
        }
        this.#body.append(bytes, at, bodyEnd);
        this.#front.keep(this, bodyEnd - at);
        // Counting the bytes may have ended other connections, or this one, to free memory.
        if (this.#over) return;
      }
      at = bodyEnd;
      if (!this.#scanner.done) return;
      this.#answer(whole ?? this.#body.view());
    }
  }

  /** Starts a request whose head is complete. */
  #begin(): boolean {
    const target = head.target;
    const mark = target.indexOf("?");
    this.begunMs = performance.now();
    this.#request = {
      method: head.method,
      path: mark < 0 ? target : target.slice(0, mark),
      search: mark < 0 ? "" : target.slice(mark + 1),
      type: (head.value(CONTENT_TYPE) ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "",
      accept: head.value(ACCEPT) ?? "",
      credential: head.value(API_KEY) ?? /^bearer\s+(.*)$/i.exec(head.value(AUTHORIZATION) ?? "")?.[1],
      peer: this.#peer,
      startedMs: this.begunMs,
    };
    this.#keepAlive = !head.isHttp10 && !/\bclose\b/i.test(head.value(CONNECTION) ?? "");
    this.#chunked = head.bodyBytes === CHUNKED;
    const refusal = bodyRefused(head.value(CONTENT_ENCODING) ?? "", head.bodyBytes, this.#front.maxBodyBytes);
    if (refusal !== undefined) {
      this.#refuse(refusal);
      return false;
    }
    if (head.isOnly(EXPECT, "100-continue")) this.#wire.write("HTTP/1.1 100 Continue\r\n\r\n");
    this.#scanner.start(head.bodyBytes);
    return true;
  }

  #answer(body: Buffer): void {
    const request = this.#request as Omit<Request, "body" | "bodyStays">;
    // A large buffer is not kept for the next request.
    const bodyStays = this.#body.size > 0 && this.#body.capacity > KEPT_BUFFER_BYTES;
    const answer = this.#front.answer({ ...request, body: this.#chunked ? joinChunks(body) : body, bodyStays });
    this.#forgetBody();
    if (!(answer instanceof Promise)) {
      this.#send(answer);
      return;
    }
    this.#answering = true;
    // Later requests stay in the kernel's buffer meanwhile.
    this.#wire.pause(HELD);
    void answer.then((late) => {
      if (late.file !== undefined) return this.#sendFile(late);
      this.#send(late);
      this.#resume();
    });
  }

  /** Continues with the input that came while an answer was made or sent. */
  #resume(): void {
    this.#answering = false;
    this.begunMs = performance.now();
    this.#wire.resume(HELD);
    this.#readLeft();
  }

  #forgetBody(): void {
    this.#front.keep(this, -this.#body.size);
    this.#body.clear(KEPT_BUFFER_BYTES);
  }

  #refuse(refusal: Refusal, status?: number): void {
    this.#keepAlive = false;
    this.#left.clear(0);
    this.#forgetBody();
    const answer = this.#front.refuse(refusal);
    this.#send(status === undefined ? answer : { ...answer, status });
    setTimeout(() => this.#wire.destroy(), LINGER_MS).unref();
  }

  /** Streams a body that is too large for memory from its file, as fast as the client reads it. */
  #sendFile(answer: Answer): void {
    const { stream, size } = answer.file as NonNullable<Answer["file"]>;
    const { socket } = this.#wire;
    const keep = this.#keepAlive && !this.#front.draining;
    this.#over = !keep;
    this.#wire.write(headOf(answer, size, keep));
    const cut = (): void => this.#wire.destroy();
    socket.once("close", () => stream.destroy());
    stream.once("error", cut);
    if (this.#request?.method === "HEAD") stream.destroy();
    stream.once("close", () => {
      this.#request = undefined;
      if (this.#wire.closed) return;
      this.#front.answered(this);
      if (!keep) this.#wire.end();
      else this.#resume();
    });
    if (!stream.destroyed) stream.pipe(socket, { end: false });
  }

  #send(answer: Answer): void {
    const { body } = answer;
    const bytes = typeof body === "string" ? Buffer.from(body) : body;
    const withoutBody = this.#request?.method === "HEAD";
    this.#request = undefined;
    const keep = this.#keepAlive && !this.#ended && !this.#front.draining;
    this.#over = !keep;
    const lines = headOf(answer, bytes.length, keep);
    if (withoutBody) this.#wire.write(lines);
    else if (bytes.length <= TEXT_BYTES) this.#wire.write(lines + bytes.toString("latin1"));
    else {
      this.#wire.write(lines);
      this.#wire.socket.write(bytes);
    }
    this.#front.answered(this);
    if (!keep) this.#wire.end();
    // A client that sends requests without reading answers gets no further answers.
    else if (this.#wire.isBehind) this.#wire.pause(BEHIND);
  }
}
