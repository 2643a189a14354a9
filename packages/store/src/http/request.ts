// Reads HTTP/1.1 requests from the bytes of one connection, using the proxy's strict parsers of heads and bodies.
import { Failure } from "@svc/contract/failures.ts";
import { BodyScanner } from "@svc/kit/proxy/body-scanner.ts";
import { REFUSED } from "@svc/kit/proxy/head-lines.ts";
import { CHUNKED, CONNECTION, EXPECT, hopNames, RequestHead } from "@svc/kit/proxy/request-head.ts";

export type Request = {
  readonly method: string;
  readonly target: string;
  readonly authorization: string | undefined;
  readonly body: Buffer;
  readonly keepAlive: boolean;
};

const AUTHORIZATION = hopNames.length + 1;
const MAX_HEAD_BYTES = 32 * 1024;
const MAX_HEAD_LINES = 128;
/** The bytes of an incomplete head that are checked early: a client of another protocol, such as TLS, waits for an answer and sends no more. */
const FIRST_BYTES = 64;
const EMPTY = Buffer.alloc(0);
const HEAD_END = Buffer.from("\r\n\r\n");
/** One parser serves all connections, since heads are parsed one at a time. */
const head = new RequestHead(["authorization"], MAX_HEAD_LINES);

export class RequestReader {
  readonly #maxBodyBytes: number;
  /** The setting that limits the body, for the message. */
  readonly #bodySetting: string;
  /** Called for `Expect: 100-continue` once the head is acceptable. */
  readonly #onContinue: () => void;
  #buffer: Buffer = EMPTY;
  /** The length of #buffer that contains no end of a head. */
  #searched = 0;
  #head: Omit<Request, "body"> | undefined;
  readonly #scanner = new BodyScanner();
  #isChunked = false;
  /** The chunks of a body with Content-Length as they arrived; a chunked body, which contains framing, is copied into one growing buffer. */
  #parts: Buffer[] = [];
  #bodyBytes = 0;

  constructor(maxBodyBytes: number, bodySetting: string, onContinue: () => void) {
    this.#maxBodyBytes = maxBodyBytes;
    this.#bodySetting = bodySetting;
    this.#onContinue = onContinue;
    this.#scanner.onData = (bytes, from, to) => this.#keep(bytes as Buffer, from, to);
  }

  /** The bytes of an incomplete request. */
  get pendingBytes(): number {
    return this.#buffer.length + this.#bodyBytes;
  }

  /** True if a head has begun and is incomplete. */
  get isInHead(): boolean {
    return this.#head === undefined && this.#buffer.length > 0;
  }

  push(bytes: Buffer): void {
    this.#buffer = this.#buffer.length === 0 ? bytes : Buffer.concat([this.#buffer, bytes]);
  }

  /** Returns the next complete request, or undefined. @throws a Failure after which the connection cannot be used. */
  next(): Request | undefined {
    if (this.#head === undefined && !this.#readHead()) return undefined;
    if (!this.#readBody()) return undefined;
    const request = { ...(this.#head as Omit<Request, "body">), body: this.#takeBody() };
    this.#head = undefined;
    return request;
  }

  #readHead(): boolean {
    if (this.#buffer.length === 0) return false;
    const end = this.#buffer.indexOf(HEAD_END, Math.max(0, this.#searched - HEAD_END.length));
    if (end > MAX_HEAD_BYTES || (end < 0 && this.#buffer.length > MAX_HEAD_BYTES))
      throw new Failure("HEADERS_TOO_LARGE", `the request's head is longer than ${MAX_HEAD_BYTES} bytes`);
    const bodyAt = head.parse(this.#buffer, 0, end < 0 ? Math.min(this.#buffer.length, FIRST_BYTES) : end + HEAD_END.length);
    if (bodyAt === REFUSED) throw new Failure(head.problemStatus === 431 ? "HEADERS_TOO_LARGE" : "INVALID_REQUEST", head.problem);
    this.#searched = end < 0 ? this.#buffer.length : 0;
    if (end < 0) return false;
    this.#head = {
      method: head.method,
      target: head.target,
      authorization: head.value(AUTHORIZATION),
      keepAlive: !head.lists(CONNECTION, "close") && (!head.isHttp10 || head.lists(CONNECTION, "keep-alive")),
    };
    this.#isChunked = head.bodyBytes === CHUNKED;
    this.#checkSize(head.bodyBytes);
    this.#scanner.start(head.bodyBytes);
    this.#buffer = this.#buffer.subarray(bodyAt);
    if (head.isOnly(EXPECT, "100-continue") && this.#buffer.length === 0) this.#onContinue();
    return true;
  }

  #readBody(): boolean {
    const end = this.#scanner.scan(this.#buffer, 0, this.#buffer.length);
    if (end < 0) throw new Failure("INVALID_REQUEST", "the body's chunked encoding is invalid");
    this.#buffer = this.#buffer.subarray(end);
    this.#checkSize(this.#bodyBytes);
    return this.#scanner.done;
  }

  #keep(bytes: Buffer, from: number, to: number): void {
    const before = this.#bodyBytes;
    this.#bodyBytes += to - from;
    if (!this.#isChunked) {
      if (to > from) this.#parts.push(bytes.subarray(from, to));
      return;
    }
    if (this.#bodyBytes > this.#maxBodyBytes) return;
    let body = this.#parts[0] ?? EMPTY;
    if (this.#bodyBytes > body.length) {
      const grown = Buffer.allocUnsafeSlow(Math.min(Math.max(this.#bodyBytes, 2 * body.length), this.#maxBodyBytes));
      body.copy(grown, 0, 0, before);
      this.#parts = [grown];
      body = grown;
    }
    bytes.copy(body, before, from, to);
  }

  #takeBody(): Buffer {
    const first = this.#parts[0] ?? EMPTY;
    const body = this.#parts.length > 1 ? Buffer.concat(this.#parts) : first.subarray(0, this.#bodyBytes);
    this.#parts = [];
    this.#bodyBytes = 0;
    return body;
  }

  #checkSize(bytes: number): void {
    if (bytes > this.#maxBodyBytes)
      throw new Failure("PAYLOAD_TOO_LARGE", `the body has ${bytes} bytes or more; the maximum is ${this.#maxBodyBytes} (setting ${this.#bodySetting})`);
  }
}
