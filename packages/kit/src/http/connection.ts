// One client's connection: parses heads strictly, reads bodies in place where it can, and answers one request after the other.
// Longer than 300 lines: the states of a connection and everything that moves it between them belong together.
import type { Socket } from "node:net";
import { Failure } from "@svc/contract/failures.ts";
import { ByteBuffer, ownCopy } from "../byte-buffer.ts";
import { INCOMPLETE, REFUSED } from "../proxy/head-lines.ts";
import { EXPECT, hopNames } from "../proxy/request-head.ts";
import { UnfinishedHead } from "../proxy/slow-heads.ts";
import { HELD, TURN, Wire, type WireOwner } from "../proxy/wire.ts";
import { RequestBody } from "./body.ts";
import type { ConnectionOwner } from "./connection-owner.ts";
import { type Answer, type Carried, headOf, isBelow, isClosedTo, type Request } from "./exchange.ts";
import { HandedStream } from "./handed-stream.ts";
import {
  BODY_BYTES_PER_MS,
  BODY_MS,
  HEAD_MS,
  IDLE_MS,
  LINGER_MS,
  MAX_DRAINED_BYTES,
  MAX_HEAD_BYTES,
  MAX_PIPELINED_AT_ONCE,
  MAX_PIPELINED_PER_TICK,
  TEXT_BYTES,
} from "./limits.ts";
import { FREE_BYTES, type MemoryHolder } from "./memory.ts";

const NOTHING = Buffer.alloc(0);

type OwnRequest = { -readonly [K in keyof Request]: Request[K] };

export class HttpConnection implements WireOwner, MemoryHolder {
  readonly peer: string;
  readonly #owner: ConnectionOwner;
  readonly #wire: Wire;
  /** An incomplete head, or what follows the request that is being answered. */
  readonly #left = new ByteBuffer();
  readonly #body: RequestBody;
  readonly #carried: Carried | undefined;
  /**
   * ```
   *      ┌─────────────── the client has read it ───────────────┐
   * ▶ head ─▶ body ─▶ answering ─▶ sending, streaming ──────────┴─▶ ending, where input is discarded
   *      │      └─▶ waiting ◀─┘    for memory of a large body or answer
   *      └─▶ handed to another server, for good
   * ```
   */
  #state: "head" | "body" | "waiting" | "answering" | "sending" | "streaming" | "ending" | "handed" = "head";
  /** When this state began, or, in `head`, when the first byte of a head came that is incomplete. */
  #sinceMs = performance.now();
  #request: OwnRequest | undefined;
  /** The client waits for 100 Continue before it sends its body. */
  #continues = false;
  #keepAlive = true;
  /** The client sends no more. */
  #ended = false;
  #holdsMemory = false;
  #handed: HandedStream | undefined;
  /** The body of an answer that waits for memory. */
  #unsent: Buffer | undefined;
  #isReading = false;
  /** Requests that had arrived before the previous answer was sent. */
  #pipelinedAtOnce = 0;
  readonly #unfinished: UnfinishedHead;
  #drainedBytes = 0;

  constructor(owner: ConnectionOwner, accepted: Socket, carried?: Carried) {
    this.#owner = owner;
    this.#body = new RequestBody(owner.options.maxBodyBytes);
    this.#carried = carried;
    this.#wire = carried === undefined ? Wire.adopt(this, accepted) : Wire.carry(this, accepted, carried.reset);
    this.peer = this.#wire.socket.remoteAddress ?? "";
    this.#wire.socket.setNoDelay(true);
    this.#unfinished = new UnfinishedHead(owner.slowHeads, this.peer, this.#wire, () =>
      this.#late("too many request heads of this client are unfinished; send each head at once"),
    );
  }

  /** True between two requests, while a head is incomplete, and where another server continues. */
  get isBetween(): boolean {
    return this.#state === "head" || this.#state === "handed";
  }

  get isAnswering(): boolean {
    return this.#state === "answering";
  }

  /** How long this state has lasted. */
  waitedMs(nowMs: number): number {
    return nowMs - this.#sinceMs;
  }

  destroy(): void {
    this.#wire.destroy();
  }

  /** Ends what makes no progress; the server calls it several times a second. */
  sweep(nowMs: number): void {
    const waitedMs = this.waitedMs(nowMs);
    const bodyMs = BODY_MS + this.#body.keptBytes / BODY_BYTES_PER_MS;
    if (this.#state === "head" && !this.#unfinished.isBegun && waitedMs > IDLE_MS) this.#wire.destroy();
    else if (this.#state === "head" && this.#unfinished.isBegun && waitedMs > HEAD_MS) this.#late(`the head was not complete within ${HEAD_MS / 1000} s`);
    else if (this.#state === "body" && waitedMs > bodyMs) this.#late(`the body was not complete within ${Math.round(bodyMs / 1000)} s`);
    else if (this.#state === "waiting" && waitedMs > IDLE_MS) this.evict(`there was no memory within ${IDLE_MS / 1000} s`);
    else if (this.#state === "handed") this.#handed?.sweep(nowMs);
    else if (this.#state === "ending" && waitedMs > LINGER_MS && this.#wire.socket.writableLength === 0) this.#wire.destroy();
  }

  evict(why: string): void {
    const isRead = this.#state === "body" || (this.#state === "head" && this.#unfinished.isBegun) || (this.#state === "waiting" && this.#unsent === undefined);
    if (isRead) this.refuse(why);
    else this.#wire.destroy();
  }

  /** Answers that the server has no capacity, and ends the connection. */
  refuse(why: string): void {
    if (!this.#wire.closed) this.#refuse(new Failure("CAPACITY_EXHAUSTED", `${why}; repeat the request`));
  }

  granted(): void {
    this.#holdsMemory = true;
    this.#sinceMs = performance.now();
    const unsent = this.#unsent;
    if (unsent !== undefined) {
      this.#unsent = undefined;
      this.#state = "answering";
      this.#wire.socket.write(unsent);
      this.#written();
    } else {
      this.#state = "body";
      this.#awaitBody();
    }
    this.#goOnReading();
  }

  onBytes(bytes: Buffer, length: number): void {
    if (this.#state === "ending") {
      this.#drainedBytes += length;
      if (this.#drainedBytes > MAX_DRAINED_BYTES) this.#wire.pause(HELD);
    } else if (this.#state === "handed") {
      this.#handed?.receive(bytes.subarray(0, length));
    } else if (!this.#mayRead || this.#wire.isPaused(TURN)) {
      // The wire delivered these bytes before the pause took effect.
      this.#left.append(bytes, 0, length);
    } else if (this.#left.length > 0) {
      if (this.#left.appendToHead(bytes, 0, length, MAX_HEAD_BYTES)) this.#readLeft();
      else this.#followHead();
    } else {
      const end = this.#read(bytes, 0, length);
      if (end < length) this.#left.append(bytes, end, length);
      this.#afterRead();
    }
  }

  onEnd(): void {
    this.#ended = true;
    this.#handed?.push(null);
    if (this.#mayRead && !this.#wire.isPaused(TURN)) this.#wire.end();
  }

  onClose(): void {
    this.#releaseMemory();
    this.#unfinished.end();
    this.#handed?.destroy();
    this.#owner.closed(this);
  }

  onDrain(): void {
    if (this.#state !== "sending") return;
    this.#next();
    this.#goOnReading();
  }

  get #mayRead(): boolean {
    return this.#state === "head" || this.#state === "body";
  }

  /** Continues with the input that came while an answer was made or sent. */
  #goOnReading(): void {
    if (this.#isReading || this.#wire.closed || !this.#mayRead) return;
    this.#wire.resume(HELD);
    if (this.#left.length > 0) this.#readLeft();
    else this.#afterRead();
  }

  #readLeft(): void {
    const { bytes } = this.#left;
    const end = this.#read(bytes, 0, bytes.length);
    // A refusal has dropped the bytes.
    if (this.#left.length > 0) this.#left.keepLast(bytes.length - end);
    if (this.#left.length === 0) this.#left.clear();
    this.#afterRead();
  }

  #afterRead(): void {
    if (this.#left.length === 0) this.#pipelinedAtOnce = 0;
    if (!this.#mayRead && this.#state !== "ending" && this.#state !== "handed") this.#wire.pause(HELD);
    if (this.#state !== "head" || this.#wire.isPaused(TURN)) return;
    if (this.#left.length > 0) {
      this.#left.headIncomplete();
      this.#followHead();
    } else if (this.#ended) this.#wire.end();
  }

  /** A head that comes in many pieces is read more slowly, alternating with others. */
  #followHead(): void {
    if (!this.#unfinished.isBegun) this.#sinceMs = performance.now();
    this.#unfinished.read();
  }

  /** Reads requests from [at, end) of `bytes`; returns where it stopped: at an incomplete head, or behind a request that is answered later. */
  #read(bytes: Buffer, at: number, end: number): number {
    this.#isReading = true;
    while (at < end && !this.#wire.closed && this.#mayRead) {
      if (this.#state === "head") {
        if (this.#pipelinedAtOnce >= MAX_PIPELINED_AT_ONCE) {
          this.#awaitTick();
          break;
        }
        const { head } = this.#owner;
        const bodyAt = head.parse(bytes, at, end);
        if (bodyAt === INCOMPLETE && end - at < MAX_HEAD_BYTES) break;
        this.#unfinished.end();
        if (bodyAt === REFUSED) this.#refuse(new Failure(head.problemStatus === 431 ? "HEADERS_TOO_LARGE" : "INVALID_REQUEST", head.problem));
        // One read may bring a whole head that is larger than the limit.
        else if (bodyAt === INCOMPLETE || bodyAt - at > MAX_HEAD_BYTES)
          this.#refuse(new Failure("HEADERS_TOO_LARGE", `the request's head is larger than ${MAX_HEAD_BYTES} bytes`));
        else if (isClosedTo(this.#carried, head, this.#owner.options)) this.#refuse(new Failure("ACCESS_DENIED", this.#carried?.stranger ?? ""));
        else if (isBelow(head.target, this.#owner.options.handsOver?.path)) return this.#handOver(bytes, at, end);
        else this.#begin();
        at = bodyAt;
      }
      if (this.#state === "body") at = this.#readBody(bytes, at, end);
    }
    this.#isReading = false;
    return this.#state === "ending" ? end : at;
  }

  /** Returns `end`: the other server reads the request's head again. */
  #handOver(bytes: Buffer, at: number, end: number): number {
    this.#isReading = false;
    this.#state = "handed";
    this.#handed = new HandedStream(this.#wire);
    this.#handed.receive(bytes.subarray(at, end));
    this.#owner.options.handsOver?.take(this.#handed);
    return end;
  }

  #awaitTick(): void {
    this.#wire.pause(TURN);
    this.#owner.pipelined.wait(this.peer, () => {
      this.#pipelinedAtOnce = MAX_PIPELINED_AT_ONCE - MAX_PIPELINED_PER_TICK;
      this.#wire.resume(TURN);
      if (!this.#wire.closed && this.#state === "head") this.#readLeft();
    });
  }

  /** Starts a request whose head is complete. */
  #begin(): void {
    const { head, options } = this.#owner;
    const headers: (string | undefined)[] = [];
    for (let at = 0; at < (options.headers?.length ?? 0); at++) headers.push(head.value(hopNames.length + 2 + at));
    this.#pipelinedAtOnce++;
    this.#sinceMs = performance.now();
    this.#request = {
      method: head.method,
      target: head.target,
      authorization: head.value(hopNames.length + 1),
      headers,
      peer: this.peer,
      body: NOTHING,
      bodyStays: true,
      startedMs: this.#sinceMs,
    };
    this.#keepAlive = head.keepsAlive && options.closesEach !== true;
    this.#continues = head.isOnly(EXPECT, "100-continue");
    this.#state = "body";
    this.#body.start(head.bodyBytes);
    if (this.#body.isTooLarge) this.#refuseBody();
  }

  /** Returns where it stopped: at the end of the body or of the bytes. */
  #readBody(bytes: Buffer, at: number, end: number): number {
    const isFirst = this.#body.keptBytes === 0 && !this.#holdsMemory;
    const bodyEnd = this.#body.read(bytes, at, end);
    if (bodyEnd < 0) this.#refuse(new Failure("INVALID_REQUEST", "the body's chunked encoding is invalid"));
    else if (this.#body.isTooLarge) this.#refuseBody();
    else if (this.#body.isWhole) this.#answer();
    else if (isFirst) this.#askMemory();
    return bodyEnd;
  }

  #askMemory(): void {
    this.#holdsMemory = this.#owner.memory.ask(this, this.#body.mostBytes);
    if (this.#holdsMemory) this.#awaitBody();
    else {
      this.#state = "waiting";
      this.#sinceMs = performance.now();
    }
  }

  #awaitBody(): void {
    this.#body.reserve();
    if (this.#continues && this.#body.keptBytes === 0) this.#wire.write("HTTP/1.1 100 Continue\r\n\r\n");
    this.#continues = false;
  }

  #refuseBody(): void {
    const { maxBodyBytes, bodySetting } = this.#owner.options;
    this.#refuse(new Failure("PAYLOAD_TOO_LARGE", `the body has more than ${maxBodyBytes} bytes, the maximum (setting ${bodySetting})`));
  }

  #answer(): void {
    const { options } = this.#owner;
    const { body, stays } = this.#body.take();
    const request = this.#request as OwnRequest;
    const isCopied = body.length > 0 && options.readsInPlace !== true && body.buffer.byteLength !== body.length;
    // A handler may keep a small part of the body for long, which must not keep alive all that was read with it.
    request.body = isCopied ? ownCopy(body) : body;
    request.bodyStays = isCopied || stays || body.length === 0;
    this.#state = "answering";
    let answer: Answer | Promise<Answer>;
    try {
      answer = options.answer(request);
    } catch (error) {
      answer = options.refuse(error, request);
    }
    if (!(answer instanceof Promise)) {
      this.#send(answer);
      return;
    }
    void answer
      .catch((error: unknown) => options.refuse(error, request))
      .then((late) => {
        this.#send(late);
        this.#goOnReading();
      });
  }

  #late(why: string): void {
    if (this.#wire.closed) return;
    this.#refuse(new Failure("TIMED_OUT", why), 408);
  }

  /** Answers a request whose rest cannot be read, so that the connection ends. */
  #refuse(failure: Failure, status?: number): void {
    if (this.#state === "ending") return;
    this.#keepAlive = false;
    this.#request = undefined;
    this.#releaseMemory();
    this.#state = "answering";
    this.#left.clear();
    this.#body.clear();
    this.#unfinished.end();
    const answer = this.#owner.options.refuse(failure);
    this.#send(status === undefined ? answer : { ...answer, status });
  }

  #send(answer: Answer): void {
    const request = this.#request;
    this.#request = undefined;
    this.#releaseMemory();
    const { status = 200, body, stream } = answer;
    if (this.#wire.closed) {
      stream?.source.destroy();
      return;
    }
    const now = performance.now();
    this.#owner.options.observe(request, status, request === undefined ? 0 : (now - request.startedMs) / 1000);
    this.#sinceMs = now;
    this.#keepAlive &&= !this.#owner.draining;
    const isBare = request?.method === "HEAD";
    if (stream !== undefined) {
      this.#sendStream(answer, stream, isBare);
      return;
    }
    const length = typeof body === "string" ? Buffer.byteLength(body) : body.length;
    const head = headOf(answer, status, this.#keepAlive, length);
    if (isBare || length === 0) this.#wire.write(head);
    else {
      this.#holdsMemory = length > FREE_BYTES && this.#owner.memory.ask(this, length);
      const bytes = typeof body === "string" && body.length !== length ? Buffer.from(body) : body;
      if (length > FREE_BYTES && !this.#holdsMemory) {
        this.#wire.write(head);
        this.#unsent = typeof bytes === "string" ? Buffer.from(bytes) : bytes;
        this.#state = "waiting";
        return;
      }
      if (length <= TEXT_BYTES) this.#wire.write(head + (typeof bytes === "string" ? bytes : bytes.toString("latin1")));
      else {
        this.#wire.write(head);
        this.#wire.socket.write(bytes);
      }
    }
    this.#written();
  }

  #sendStream(answer: Answer, { source, sizeBytes }: NonNullable<Answer["stream"]>, isBare: boolean): void {
    const { socket } = this.#wire;
    this.#becomes("streaming");
    this.#keepAlive &&= sizeBytes !== undefined;
    this.#wire.write(headOf(answer, answer.status ?? 200, this.#keepAlive, sizeBytes));
    const gone = (): unknown => source.destroy();
    socket.once("close", gone);
    // The client must not take a part for the whole.
    source.once("error", () => this.#wire.destroy());
    source.once("close", () => {
      socket.off("close", gone);
      if (this.#wire.closed) return;
      this.#next();
      this.#goOnReading();
    });
    if (isBare) source.destroy();
    else source.pipe(socket, { end: false });
  }

  /** A client that does not read its answers gets no further ones. */
  #written(): void {
    if (this.#wire.socket.writableLength > FREE_BYTES) this.#becomes("sending");
    else this.#next();
  }

  /** Only Node's own timer notices that the client takes no bytes of a long answer; it is set for few connections, since it costs time. */
  #becomes(state: "sending" | "streaming"): void {
    this.#state = state;
    if (this.#wire.socket.timeout !== IDLE_MS)
      this.#wire.socket.setTimeout(IDLE_MS, () => {
        if (this.#state === "sending" || this.#state === "streaming") this.#wire.destroy();
      });
  }

  #next(): void {
    this.#releaseMemory();
    if (this.#keepAlive && !this.#owner.draining) {
      this.#state = "head";
      return;
    }
    this.#state = "ending";
    this.#sinceMs = performance.now();
    this.#left.clear();
    this.#wire.end();
    this.#wire.resume(HELD);
  }

  #releaseMemory(): void {
    if (!this.#holdsMemory && this.#state !== "waiting") return;
    this.#holdsMemory = false;
    this.#owner.memory.release(this);
  }
}
