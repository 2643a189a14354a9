// One client's connection: heads read strictly, bodies into a buffer that is kept, one answer after the other.
import { STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { BodyScanner } from "@svc/kit/proxy/body-scanner.ts";
import { INCOMPLETE, REFUSED } from "@svc/kit/proxy/head-lines.ts";
import { CHUNKED, CONNECTION, EXPECT, hopNames, RequestHead } from "@svc/kit/proxy/request-head.ts";
import { HELD, Wire, type WireOwner } from "@svc/kit/proxy/wire.ts";
import type { Answer, Request } from "./http.ts";
import { Refusal } from "./refusal.ts";

const CONTENT_TYPE = hopNames.length + 1;
const ACCEPT = hopNames.length + 2;
const MAX_HEAD_BYTES = 32 * 1024;
const MAX_HEAD_LINES = 128;
/** A connection that says nothing for this long ends. */
const IDLE_MS = 120_000;
/** Between requests a connection keeps a body buffer up to this size. */
const KEPT_BUFFER_BYTES = 1024 * 1024;
/** Up to this size head and body go out as one piece of text, which the kernel takes without a buffer of its own. */
const TEXT_BYTES = 64 * 1024;

const NOTHING = Buffer.alloc(0);
/** Heads are read one at a time, whoever's they are. */
const head = new RequestHead(["content-type", "accept"], MAX_HEAD_LINES);

export type Front = {
  readonly maxBodyBytes: number;
  draining: boolean;
  /** The answer, never a failure. */
  answer(request: Request): Answer | Promise<Answer>;
  /** The answer to a request that could not be read. */
  refuse(refusal: Refusal): Answer;
  closed(connection: Connection): void;
};

export class Connection implements WireOwner {
  readonly #front: Front;
  readonly #wire: Wire;
  readonly #scanner = new BodyScanner();
  /** Bytes of a head that is not whole, or of requests behind the one being answered. */
  #left = NOTHING;
  #buffer = NOTHING;
  #size = 0;
  #request: Omit<Request, "body"> | undefined;
  #chunked = false;
  #expected = 0;
  #keepAlive = true;
  #answering = false;
  #ended = false;

  constructor(front: Front, accepted: Socket) {
    this.#front = front;
    this.#wire = Wire.adopt(this, accepted);
    this.#wire.socket.setTimeout(IDLE_MS, () => this.#wire.destroy());
  }

  get idle(): boolean {
    return !this.#answering && this.#request === undefined;
  }

  destroy(): void {
    this.#wire.destroy();
  }

  onBytes(bytes: Buffer, length: number): void {
    if (this.#answering) {
      this.#left = Buffer.concat([this.#left, bytes.subarray(0, length)]);
      if (this.#left.length > this.#front.maxBodyBytes) this.#wire.destroy();
      return;
    }
    if (this.#left.length === 0) {
      this.#read(bytes, length);
      return;
    }
    const all = Buffer.concat([this.#left, bytes.subarray(0, length)]);
    this.#left = NOTHING;
    this.#read(all, all.length);
  }

  onEnd(): void {
    this.#ended = true;
    if (!this.#answering) this.#wire.end();
  }

  onClose(): void {
    this.#front.closed(this);
  }

  onDrain(): void {}

  #read(bytes: Buffer, end: number): void {
    let at = 0;
    while (at < end && !this.#wire.closed) {
      if (this.#request === undefined) {
        const body = head.parse(bytes, at, end);
        if (body === INCOMPLETE && end - at <= MAX_HEAD_BYTES) {
          this.#left = Buffer.from(bytes.subarray(at, end));
          return;
        }
        if (body === INCOMPLETE) {
          this.#refuse(new Refusal("too_large", `the request's head is larger than ${MAX_HEAD_BYTES} bytes`, {}, "HEADERS_TOO_LARGE"));
          return;
        }
        if (body === REFUSED) {
          this.#refuse(new Refusal("invalid_value", head.problem));
          return;
        }
        at = body;
        if (!this.#begin()) return;
      }
      const bodyEnd = this.#scanner.scan(bytes, at, end);
      if (bodyEnd < 0) {
        this.#refuse(new Refusal("invalid_value", "the body's chunks are not well framed"));
        return;
      }
      // A body that lies whole in what was just read is used where it lies.
      const whole = this.#size === 0 && this.#scanner.done ? bytes.subarray(at, bodyEnd) : undefined;
      if (whole === undefined) this.#keep(bytes, at, bodyEnd);
      at = bodyEnd;
      const most = this.#front.maxBodyBytes;
      if (this.#size > most) {
        this.#refuse(new Refusal("too_large", `the body is larger than ${most} bytes (indexer.max_body_bytes)`));
        return;
      }
      if (!this.#scanner.done) return;
      this.#answer(whole ?? this.#buffer.subarray(0, this.#size));
      if (this.#answering) {
        if (at < end) this.#left = Buffer.from(bytes.subarray(at, end));
        return;
      }
    }
  }

  /** A head is whole: what its request is, before its body. */
  #begin(): boolean {
    const target = head.target;
    const mark = target.indexOf("?");
    this.#request = {
      method: head.method,
      path: mark < 0 ? target : target.slice(0, mark),
      search: mark < 0 ? "" : target.slice(mark + 1),
      type: (head.value(CONTENT_TYPE) ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "",
      accept: head.value(ACCEPT) ?? "",
      startedMs: performance.now(),
    };
    this.#keepAlive = !head.isHttp10 && !/\bclose\b/i.test(head.value(CONNECTION) ?? "");
    this.#chunked = head.bodyBytes === CHUNKED;
    const most = this.#front.maxBodyBytes;
    if (head.bodyBytes > most) {
      this.#refuse(new Refusal("too_large", `the body has ${head.bodyBytes} bytes; ${most} are taken (indexer.max_body_bytes)`));
      return false;
    }
    if (head.isOnly(EXPECT, "100-continue")) this.#wire.write("HTTP/1.1 100 Continue\r\n\r\n");
    this.#scanner.start(head.bodyBytes);
    this.#expected = head.bodyBytes;
    return true;
  }

  #keep(bytes: Buffer, from: number, to: number): void {
    const size = this.#size + to - from;
    if (size > this.#front.maxBodyBytes) {
      this.#size = size;
      return;
    }
    if (size > this.#buffer.length) this.#grow(Math.max(size, this.#expected, this.#chunked ? 2 * this.#buffer.length : 0));
    bytes.copy(this.#buffer, this.#size, from, to);
    this.#size = size;
  }

  #grow(size: number): void {
    const fresh = Buffer.allocUnsafeSlow(size);
    this.#buffer.copy(fresh, 0, 0, this.#size);
    this.#buffer = fresh;
  }

  #answer(body: Buffer): void {
    const request = this.#request as Request;
    this.#size = 0;
    const answer = this.#front.answer({ ...request, body: this.#chunked ? joinChunks(body) : body });
    if (this.#buffer.length > KEPT_BUFFER_BYTES) this.#buffer = NOTHING;
    if (!(answer instanceof Promise)) {
      this.#send(answer);
      return;
    }
    this.#answering = true;
    void answer.then((late) => {
      this.#answering = false;
      this.#send(late);
      const left = this.#left;
      this.#left = NOTHING;
      if (left.length > 0 && !this.#wire.closed) this.#read(left, left.length);
    });
  }

  #refuse(refusal: Refusal): void {
    this.#keepAlive = false;
    this.#left = NOTHING;
    // What still comes is of the request that was refused.
    this.#wire.pause(HELD);
    this.#send(this.#front.refuse(refusal));
  }

  #send({ status = 200, type, body }: Answer): void {
    const bytes = typeof body === "string" ? Buffer.from(body) : body;
    const withoutBody = this.#request?.method === "HEAD";
    this.#request = undefined;
    const keep = this.#keepAlive && !this.#ended && !this.#front.draining;
    const lines = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "Unknown"}\r\nContent-Type: ${type}\r\nContent-Length: ${bytes.length}\r\n${keep ? "" : "Connection: close\r\n"}\r\n`;
    if (withoutBody) this.#wire.write(lines);
    else if (bytes.length <= TEXT_BYTES) this.#wire.write(lines + bytes.toString("latin1"));
    else {
      this.#wire.write(lines);
      this.#wire.socket.write(bytes);
    }
    if (!keep) this.#wire.end();
  }
}

/** The content of a body whose chunk framing was checked while it came. */
function joinChunks(framed: Buffer): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; at < framed.length; ) {
    const lineEnd = framed.indexOf("\r\n", at);
    const size = Number.parseInt(framed.toString("latin1", at, lineEnd), 16);
    if (!(size > 0)) break;
    parts.push(framed.subarray(lineEnd + 2, lineEnd + 2 + size));
    at = lineEnd + 2 + size + 2;
  }
  return Buffer.concat(parts);
}
