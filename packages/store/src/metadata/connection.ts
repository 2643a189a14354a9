// One client's connection: parses heads strictly, serves one request at a time, and is bounded in bytes and time.
import type { Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { asFailure, Failure } from "@svc/contract/failures.ts";
import { LEASE_HEADER } from "@svc/contract/metadata.ts";
import { BodyScanner } from "@svc/kit/proxy/body-scanner.ts";
import { INCOMPLETE, REFUSED } from "@svc/kit/proxy/head-lines.ts";
import { CHUNKED, CONNECTION, EXPECT, hopNames, RequestHead } from "@svc/kit/proxy/request-head.ts";
import { BEHIND, HELD, Wire, type WireOwner } from "@svc/kit/proxy/wire.ts";
import { type Answer, printHead, type Request, refusal } from "./answer.ts";
import { type Budget, FREE_BYTES, type Holder } from "./budget.ts";
import { Unread } from "./unread.ts";

const LEASE = hopNames.length + 1;
const MAX_HEAD_BYTES = FREE_BYTES;
const MAX_HEAD_LINES = 128;
/** The requests of one connection in a row before other connections are served. */
const REQUESTS_PER_TICK = 16;
/** With more unsent bytes than this, a connection waits for its client. */
const BEHIND_BYTES = FREE_BYTES;
/** The time limit for receiving a whole request, and for sending a whole answer. */
const REQUEST_MS = 30_000;
/** A connection without any traffic between requests for this long ends. */
const IDLE_MS = 60_000;

const NOTHING = Buffer.alloc(0);
/** One parser serves all connections, since heads are parsed one at a time. */
const head = new RequestHead([LEASE_HEADER], MAX_HEAD_LINES);

export type Service = {
  readonly budget: Budget;
  readonly maxValueBytes: number;
  answer(request: Request): Answer | Promise<Answer>;
  observe(method: string, status: number, seconds: number): void;
  closed(connection: Connection): void;
};

export class Connection implements WireOwner, Holder {
  readonly peer: string;
  readonly #service: Service;
  readonly #wire: Wire;
  readonly #scanner = new BodyScanner();
  /** idle ─▶ head ─▶ body ─▶ answering ─▶ idle; granting: a large body or answer waits for memory; ending: the last answer was written. */
  #state: "idle" | "head" | "granting" | "body" | "answering" | "ending" = "idle";
  #sinceMs = performance.now();
  readonly #unread = new Unread(MAX_HEAD_BYTES);
  #body = NOTHING;
  #bodyBytes = 0;
  #request: Omit<Request, "body"> = { method: "none", target: "", lease: undefined };
  #keepAlive = true;
  #startedMs = 0;
  #continues = false;
  #reading = false;
  #inTick = 0;
  #pieces: Iterator<Buffer | undefined> | undefined;
  #largeAnswer: Buffer | undefined;

  constructor(service: Service, accepted: Socket) {
    this.#service = service;
    this.#wire = Wire.adopt(this, accepted);
    this.#wire.socket.setNoDelay(true);
    this.peer = this.#wire.socket.remoteAddress ?? "unknown";
    this.#scanner.onData = (bytes, from, to) => this.#keep(bytes, from, to);
  }

  /** Returns how long the server has waited for this client; 0 while the server works on its request. */
  waitedMs(now: number): number {
    return this.#state === "answering" && !this.#wire.isPaused(BEHIND) ? 0 : now - this.#sinceMs;
  }

  /** The server calls this about once a second; it ends waits that have lasted too long. */
  sweep(now: number): void {
    const waited = this.waitedMs(now);
    // A connection that waits for memory waits for other clients, so it gets the longer limit.
    const isPatient = this.#state === "idle" || this.#state === "granting";
    if (waited > (isPatient ? IDLE_MS : REQUEST_MS)) this.evict(isPatient ? `no memory within ${IDLE_MS} ms` : `no whole request within ${REQUEST_MS} ms`);
  }

  evict(reason: string): void {
    const isReading = this.#state === "head" || this.#state === "body" || (this.#state === "granting" && this.#largeAnswer === undefined);
    if (isReading) this.#wire.write(printHead({ ...refusal(new Failure("TIMED_OUT", reason)), status: 408, body: NOTHING }, false, 0));
    this.#wire.destroy();
  }

  /** Ends the connection after the request that is being answered. */
  finish(): void {
    this.#keepAlive = false;
    if (this.#state !== "answering" && this.#largeAnswer === undefined) this.#wire.destroy();
  }

  onBytes(bytes: Buffer, length: number): void {
    if (this.#state === "ending") return;
    this.#unread.append(bytes, length);
    this.#read();
  }
  onEnd(): void {
    this.#keepAlive = false;
    if (this.#state === "idle" || this.#state === "head" || this.#state === "body") this.#wire.end();
  }
  onClose(): void {
    this.#pieces?.return?.();
    this.#service.budget.release(this);
    this.#service.closed(this);
  }
  onDrain(): void {
    if (!this.#wire.isPaused(BEHIND)) return;
    this.#wire.resume(BEHIND);
    this.#sinceMs = performance.now();
    if (this.#pieces !== undefined) this.#sendPieces();
    else if (this.#state === "answering") this.#next();
  }

  /** Processes the available bytes for a bounded number of requests, so that other connections are served. */
  #read(): void {
    if (this.#reading) return;
    this.#reading = true;
    while (this.#inTick < REQUESTS_PER_TICK) {
      if (this.#state === "idle" && !this.#unread.isEmpty) {
        this.#state = "head";
        this.#sinceMs = this.#startedMs = performance.now();
        this.#unread.beginHead();
      }
      if (this.#state === "head" && !this.#readHead()) break;
      if (this.#state === "body" && !this.#readBody()) break;
      if (this.#state !== "idle" || this.#unread.isEmpty) break;
    }
    this.#reading = false;
    if (this.#unread.isEmpty) this.#unread.clear();
    // Reading stops while further bytes could not be processed; incomplete heads and bodies continue to be read.
    if (this.#state === "answering" || this.#state === "granting" || (this.#state === "idle" && !this.#unread.isEmpty)) this.#wire.pause(HELD);
    else this.#wire.resume(HELD);
    // The continuation is scheduled with setImmediate: with promises, immediate answers would starve the event loop.
    if (this.#inTick >= REQUESTS_PER_TICK)
      setImmediate(() => {
        this.#inTick = 0;
        this.#read();
      });
  }

  #readHead(): boolean {
    const unread = this.#unread;
    const end = unread.headEnd();
    const length = (end < 0 ? unread.to : end) - unread.from;
    if (length > MAX_HEAD_BYTES) return this.#refuse(new Failure("HEADERS_TOO_LARGE", `the request's head is longer than ${MAX_HEAD_BYTES} bytes`));
    if (end < 0 && !unread.lookAgain()) return false;
    const bodyAt = head.parse(unread.bytes, unread.from, end < 0 ? unread.to : end);
    if (end < 0 && bodyAt === INCOMPLETE) return false;
    if (bodyAt === REFUSED || bodyAt === INCOMPLETE)
      return this.#refuse(new Failure(head.problemStatus === 431 ? "HEADERS_TOO_LARGE" : "INVALID_REQUEST", head.problem));
    unread.from = bodyAt;
    this.#request = { method: head.method, target: head.target, lease: head.value(LEASE) };
    const connection =
      head
        .value(CONNECTION)
        ?.toLowerCase()
        .split(",")
        .map((word) => word.trim()) ?? [];
    this.#keepAlive &&= !connection.includes("close") && (!head.isHttp10 || connection.includes("keep-alive"));
    const most = this.#service.maxValueBytes;
    if (head.bodyBytes > most)
      return this.#refuse(new Failure("PAYLOAD_TOO_LARGE", `the value has ${head.bodyBytes} bytes; the maximum is ${most} (setting metadata.max_value_bytes)`));
    this.#scanner.start(head.bodyBytes);
    this.#body = NOTHING;
    this.#bodyBytes = 0;
    this.#continues = head.isOnly(EXPECT, "100-continue") && unread.isEmpty && head.bodyBytes !== 0;
    if (!this.#service.budget.ask(this, head.bodyBytes === CHUNKED ? most : head.bodyBytes)) {
      this.#state = "granting";
      this.#sinceMs = performance.now();
      return false;
    }
    this.#beginBody();
    return true;
  }

  #beginBody(): void {
    this.#state = "body";
    if (this.#continues) this.#wire.write("HTTP/1.1 100 Continue\r\n\r\n");
  }

  granted(): void {
    this.#sinceMs = performance.now();
    if (this.#largeAnswer !== undefined) {
      const value = this.#largeAnswer;
      this.#largeAnswer = undefined;
      this.#state = "answering";
      this.#wire.socket.write(value);
      this.#afterWrite();
      return;
    }
    this.#beginBody();
    this.#read();
  }

  #keep(bytes: Uint8Array, from: number, to: number): void {
    const size = this.#bodyBytes + to - from;
    if (size > this.#body.length && size <= this.#service.maxValueBytes) {
      const fresh = Buffer.allocUnsafeSlow(Math.min(Math.max(size, 2 * this.#body.length), this.#service.maxValueBytes));
      this.#body.copy(fresh, 0, 0, this.#bodyBytes);
      this.#body = fresh;
    }
    if (size <= this.#service.maxValueBytes) this.#body.set(bytes.subarray(from, to), this.#bodyBytes);
    this.#bodyBytes = size;
  }

  #readBody(): boolean {
    const end = this.#scanner.scan(this.#unread.bytes, this.#unread.from, this.#unread.to);
    if (end < 0) return this.#refuse(new Failure("INVALID_REQUEST", "the body's chunked encoding is invalid"));
    this.#unread.from = end;
    const most = this.#service.maxValueBytes;
    if (this.#bodyBytes > most)
      return this.#refuse(
        new Failure("PAYLOAD_TOO_LARGE", `the value has ${this.#bodyBytes} bytes or more; the maximum is ${most} (setting metadata.max_value_bytes)`),
      );
    if (!this.#scanner.done) return false;
    this.#state = "answering";
    const answer = this.#service.answer({ ...this.#request, body: this.#body.subarray(0, this.#bodyBytes) });
    this.#body = NOTHING;
    if (answer instanceof Promise) void answer.then((late) => this.#send(late));
    else this.#send(answer);
    return true;
  }

  /** Refuses a request whose rest cannot be parsed; the connection ends with the answer. */
  #refuse(failure: Failure): false {
    this.#keepAlive = false;
    this.#request = { ...this.#request, method: "none" };
    this.#send(refusal(asFailure(failure)));
    return false;
  }

  #send(answer: Answer): void {
    this.#service.budget.release(this);
    if (this.#wire.closed) return;
    const { method } = this.#request;
    this.#service.observe(method, answer.status, (performance.now() - this.#startedMs) / 1000);
    this.#state = "answering";
    this.#sinceMs = performance.now();
    const streams = answer.pieces !== undefined && method !== "HEAD";
    // The end of the connection marks the end of a list whose length is not known in advance.
    if (streams) this.#keepAlive = false;
    const isBare = method === "HEAD" || (answer.body.length === 0 && !streams);
    const isSmall = answer.body.length <= FREE_BYTES;
    // Head and body are corked into one write, since the kernel would otherwise send two packets.
    this.#wire.socket.cork();
    this.#wire.write(printHead(answer, this.#keepAlive, streams ? undefined : answer.body.length));
    if (!isBare && isSmall) this.#wire.socket.write(answer.body);
    this.#wire.socket.uncork();
    if (streams) {
      this.#pieces = answer.pieces;
      this.#sendPieces();
      return;
    }
    if (isBare) this.#next();
    else if (isSmall) this.#afterWrite();
    else if (this.#service.budget.ask(this, answer.body.length)) {
      this.#wire.socket.write(answer.body);
      this.#afterWrite();
    } else {
      this.#largeAnswer = answer.body;
      this.#state = "granting";
    }
  }

  /** Sends a list as fast as its client accepts it, and lets other connections be served between two pieces. */
  #sendPieces(): void {
    const pieces = this.#pieces as Iterator<Buffer | undefined>;
    if (this.#wire.closed) return;
    const { value, done } = pieces.next();
    if (done === true) {
      this.#pieces = undefined;
      this.#next();
      return;
    }
    if (value !== undefined) this.#wire.socket.write(value);
    this.#sinceMs = performance.now();
    if (this.#wire.socket.writableLength > BEHIND_BYTES) this.#wire.pause(BEHIND);
    else setImmediate(() => this.#sendPieces());
  }

  #afterWrite(): void {
    if (this.#wire.socket.writableLength > BEHIND_BYTES) this.#wire.pause(BEHIND);
    else this.#next();
  }

  #next(): void {
    this.#service.budget.release(this);
    this.#sinceMs = performance.now();
    if (!this.#keepAlive) {
      this.#state = "ending";
      this.#unread.clear();
      this.#wire.end();
      this.#wire.resume(HELD);
      return;
    }
    this.#state = "idle";
    this.#inTick++;
    if (!this.#reading) this.#read();
  }
}
