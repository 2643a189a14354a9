// Reads HTTP/1.1 requests from the bytes of one connection: heads, bodies with a length, bodies in chunks.
import { Failure } from "@svc/contract/failures.ts";

export type Request = {
  readonly method: string;
  readonly target: string;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: Buffer;
  readonly keepAlive: boolean;
};

const MAX_HEAD_BYTES = 32 * 1024;
const EMPTY = Buffer.alloc(0);
const HEAD_END = Buffer.from("\r\n\r\n");

type Head = Omit<Request, "body">;
type Body = { kind: "length"; left: number } | { kind: "chunks"; left: number; state: "size" | "data" | "end" | "trailer" };

export class RequestReader {
  readonly #maxBodyBytes: number;
  /** The setting that bounds a body. */
  readonly #bodySetting: string;
  /** Asked for by `Expect: 100-continue`; called once the head is acceptable. */
  readonly #onContinue: () => void;
  #buffer: Buffer = EMPTY;
  #head: Head | undefined;
  #body: Body | undefined;
  #parts: Buffer[] = [];
  #partBytes = 0;

  constructor(maxBodyBytes: number, bodySetting: string, onContinue: () => void) {
    this.#maxBodyBytes = maxBodyBytes;
    this.#bodySetting = bodySetting;
    this.#onContinue = onContinue;
  }

  push(bytes: Buffer): void {
    this.#buffer = this.#buffer.length === 0 ? bytes : Buffer.concat([this.#buffer, bytes]);
  }

  /** The next whole request, or undefined. @throws a Failure after which the connection is of no more use. */
  next(): Request | undefined {
    if (this.#head === undefined && !this.#readHead()) return undefined;
    if (!this.#readBody()) return undefined;
    const head = this.#head as Head;
    const body = this.#parts.length === 1 ? (this.#parts[0] as Buffer) : Buffer.concat(this.#parts);
    this.#head = undefined;
    this.#body = undefined;
    this.#parts = [];
    this.#partBytes = 0;
    return { ...head, body };
  }

  #readHead(): boolean {
    const end = this.#buffer.indexOf(HEAD_END);
    if (end < 0) {
      if (this.#buffer.length > MAX_HEAD_BYTES) throw new Failure("HEADERS_TOO_LARGE", `the request's head is longer than ${MAX_HEAD_BYTES} bytes`);
      return false;
    }
    if (end > MAX_HEAD_BYTES) throw new Failure("HEADERS_TOO_LARGE", `the request's head is longer than ${MAX_HEAD_BYTES} bytes`);
    const lines = this.#buffer.toString("latin1", 0, end).split("\r\n");
    this.#buffer = this.#buffer.subarray(end + 4);
    const [method, target, version, more] = (lines[0] ?? "").split(" ");
    if (method === undefined || target === undefined || more !== undefined || !/^HTTP\/1\.[01]$/.test(version ?? ""))
      throw bad("the first line is not an HTTP/1.1 request line");
    const headers = new Map<string, string>();
    for (let i = 1; i < lines.length; i++) {
      const line = lines[i] as string;
      const colon = line.indexOf(":");
      if (colon <= 0 || line[0] === " " || line[0] === "\t") throw bad("a header line has no name");
      const name = line.slice(0, colon).toLowerCase();
      if (headers.has(name) && (name === "content-length" || name === "transfer-encoding")) throw bad(`the header ${name} is given twice`);
      headers.set(name, line.slice(colon + 1).trim());
    }
    const connection = headers.get("connection")?.toLowerCase() ?? "";
    this.#head = { method, target, headers, keepAlive: version === "HTTP/1.1" ? connection !== "close" : connection === "keep-alive" };
    this.#body = this.#bodyOf(headers);
    if (headers.get("expect")?.toLowerCase() === "100-continue" && this.#buffer.length === 0) this.#onContinue();
    return true;
  }

  #bodyOf(headers: ReadonlyMap<string, string>): Body {
    const length = headers.get("content-length");
    const encoding = headers.get("transfer-encoding");
    if (encoding !== undefined) {
      if (length !== undefined || encoding.toLowerCase() !== "chunked") throw bad("the body has two lengths, or a coding other than chunked");
      return { kind: "chunks", left: 0, state: "size" };
    }
    if (length === undefined) return { kind: "length", left: 0 };
    if (!/^\d{1,15}$/.test(length)) throw bad("Content-Length is not a number");
    this.#checkSize(Number(length));
    return { kind: "length", left: Number(length) };
  }

  #readBody(): boolean {
    const body = this.#body as Body;
    if (body.kind === "length") {
      if (body.left > 0) body.left -= this.#takePart(body.left);
      return body.left === 0;
    }
    while (true) {
      if (body.state === "data") {
        body.left -= this.#takePart(body.left);
        if (body.left > 0) return false;
        body.state = "end";
      }
      const end = this.#buffer.indexOf("\r\n");
      if (end < 0) {
        if (this.#buffer.length > MAX_HEAD_BYTES) throw bad("a chunk's size line is too long");
        return false;
      }
      const line = this.#buffer.toString("latin1", 0, end);
      this.#buffer = this.#buffer.subarray(end + 2);
      if (body.state === "trailer") {
        if (line === "") return true;
      } else if (body.state === "end") {
        if (line !== "") throw bad("a chunk is longer than its size");
        body.state = "size";
      } else {
        const size = /^([0-9a-fA-F]{1,8})[ \t]*(;.*)?$/.exec(line)?.[1];
        if (size === undefined) throw bad("a chunk has no size");
        body.left = Number.parseInt(size, 16);
        this.#checkSize(this.#partBytes + body.left);
        body.state = body.left === 0 ? "trailer" : "data";
      }
    }
  }

  #takePart(atMost: number): number {
    const part = this.#buffer.subarray(0, atMost);
    if (part.length > 0) {
      this.#parts.push(part);
      this.#partBytes += part.length;
      this.#buffer = this.#buffer.subarray(part.length);
    }
    return part.length;
  }

  #checkSize(bytes: number): void {
    if (bytes > this.#maxBodyBytes)
      throw new Failure("PAYLOAD_TOO_LARGE", `the body has ${bytes} bytes or more; the maximum is ${this.#maxBodyBytes} (setting ${this.#bodySetting})`);
  }
}

function bad(message: string): Failure {
  return new Failure("INVALID_REQUEST", message);
}
