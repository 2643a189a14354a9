// A connection to a server of this deployment, which carries one call after another and uses the proxy's parser.

import { ByteBuffer } from "./byte-buffer.ts";
import { BodyScanner } from "./proxy/body-scanner.ts";
import { INCOMPLETE, REFUSED } from "./proxy/head-lines.ts";
import { proxyLimits } from "./proxy/limits.ts";
import type { ResponseHead } from "./proxy/response-head.ts";
import { type Dial, Wire, type WireOwner } from "./proxy/wire.ts";

export type Received = { readonly status: number; readonly head: string; readonly text: string };

export type Exchange = {
  readonly method: string;
  /** Head and body. A string of single-byte characters needs only one write. */
  readonly request: string | Buffer;
  /** Called once; `again` is undefined if the connection cannot serve another call. */
  readonly onAnswer: (received: Received, again: KeptConnection | undefined) => void;
  /** Called if no whole answer will come. `wasSent`: the server may have received the whole request. */
  readonly onFailure: (error: Error, wasSent: boolean) => void;
};

export type ConnectionOptions = {
  readonly connect: Dial;
  /** All connections share this parser, because each head is parsed in one step. */
  readonly head: ResponseHead;
  readonly maxAnswerBytes: number;
  /** The connection closes after this idle time. */
  readonly idleMs: number;
  /** Called once. */
  readonly onClosed: (connection: KeptConnection) => void;
};

/** dialling ─▶ head ─▶ body ─▶ idle ─▶ head …; any ─▶ closed */
type State = "dialling" | "head" | "body" | "idle" | "closed";

export class KeptConnection implements WireOwner {
  readonly #options: ConnectionOptions;
  readonly #wire: Wire;
  readonly #body = new BodyScanner();
  #state: State = "dialling";
  #exchange: Exchange | undefined;
  /** The start of a head whose rest has not arrived. */
  #partialHead: ByteBuffer | undefined;
  #status = 0;
  #head = "";
  #keepsAlive = false;
  #pieces: Buffer[] = [];
  #bytes = 0;

  constructor(options: ConnectionOptions, exchange: Exchange) {
    this.#options = options;
    this.#exchange = exchange;
    this.#wire = Wire.dial(this, options.connect);
    this.#wire.socket.on("timeout", () => {
      if (this.#state === "idle") this.close();
    });
    this.#body.onData = (bytes, start, end) => this.#take(bytes, start, end);
  }

  get isDialling(): boolean {
    return this.#state === "dialling";
  }

  /** False once the connection is closing; the close event comes a little later. */
  get isWritable(): boolean {
    return this.#wire.socket.writable && !this.#wire.socket.readableEnded;
  }

  /** Sends the next call on an idle connection. */
  send(exchange: Exchange): void {
    this.#exchange = exchange;
    this.#wire.socket.setTimeout(0);
    this.#begin(exchange);
  }

  #begin({ request }: Exchange): void {
    this.#state = "head";
    if (typeof request === "string") this.#wire.write(request);
    else this.#wire.socket.write(request);
  }

  /** Fails the current call, if there is one, with this error. */
  abort(error: Error): void {
    this.#fail(error);
  }

  close(): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#wire.destroy();
    this.#options.onClosed(this);
  }

  onConnect(): void {
    if (this.#state === "dialling" && this.#exchange !== undefined) this.#begin(this.#exchange);
  }

  onBytes(bytes: Buffer, length: number): void {
    if (this.#state === "head") this.#readHead(bytes, length);
    else if (this.#state === "body") this.#readBody(bytes, 0, length);
    // No request is pending, so these bytes cannot belong to an answer.
    else if (this.#state === "idle") this.close();
  }

  #readHead(read: Buffer, length: number) {
    const { head } = this.#options;
    const method = this.#exchange?.method;
    let bytes = read;
    let end = length;
    if (this.#partialHead !== undefined) {
      if (!this.#partialHead.appendToHead(read, 0, length, proxyLimits.headBytes)) return;
      ({ bytes } = this.#partialHead);
      end = bytes.length;
      this.#partialHead = undefined;
    }
    for (let start = 0; start < end; ) {
      const bodyAt = head.parse(bytes, start, end, method === "HEAD");
      if (bodyAt === REFUSED) return this.#fail(new Error(`its answer is malformed: ${head.problem}`));
      if (bodyAt === INCOMPLETE) {
        if (end - start >= proxyLimits.headBytes) return this.#fail(new Error(`the head of its answer is larger than ${proxyLimits.headBytes} bytes`));
        this.#partialHead = new ByteBuffer(bytes, start, end);
        this.#partialHead.headIncomplete();
        return;
      }
      start = bodyAt;
      // An interim response (1xx); the final one follows.
      if (head.status < 200) continue;
      this.#status = head.status;
      this.#head = head.text;
      this.#keepsAlive = head.keepsAlive;
      this.#pieces = [];
      this.#bytes = 0;
      this.#body.start(head.bodyBytes);
      this.#state = "body";
      return this.#readBody(bytes, start, end);
    }
  }

  #readBody(bytes: Buffer, start: number, end: number) {
    const bodyEnd = this.#body.scan(bytes, start, end);
    if (bodyEnd < 0) return this.#fail(new Error("the chunks of its answer are malformed"));
    if (this.#body.endsWithConnection) this.#take(bytes, start, bodyEnd);
    const { maxAnswerBytes } = this.#options;
    if (this.#bytes > maxAnswerBytes) return this.#fail(new Error(`an answer of more than ${maxAnswerBytes} bytes`));
    if (this.#body.done) this.#finish(bodyEnd === end);
  }

  #take(bytes: Uint8Array, start: number, end: number): void {
    this.#bytes += end - start;
    if (this.#bytes <= this.#options.maxAnswerBytes) this.#pieces.push(Buffer.from(bytes.subarray(start, end)));
  }

  #finish(isClean: boolean): void {
    const exchange = this.#exchange as Exchange;
    this.#exchange = undefined;
    const [first] = this.#pieces;
    const whole = this.#pieces.length === 1 && first !== undefined ? first : Buffer.concat(this.#pieces);
    this.#pieces = [];
    // If the server answered before it read the whole request, the rest of that request must not mix with the next one.
    const isReusable = isClean && this.#keepsAlive && this.#wire.socket.writableLength === 0;
    if (isReusable) {
      this.#state = "idle";
      this.#wire.socket.setTimeout(this.#options.idleMs);
    } else this.close();
    exchange.onAnswer({ status: this.#status, head: this.#head, text: whole.toString("utf8") }, isReusable ? this : undefined);
  }

  onEnd(): void {
    if (this.#state === "body" && this.#body.endsWithConnection) this.#finish(false);
    else this.#fail(hungUp());
  }

  onClose(error: NodeJS.ErrnoException | undefined): void {
    this.#fail(error ?? hungUp());
  }

  onDrain(): void {}

  #fail(error: NodeJS.ErrnoException): void {
    // If the only write of a request failed, its server has received at most a part and executes nothing.
    const wasSent = this.#state !== "dialling" && !(this.#state === "head" && error.syscall === "write");
    const exchange = this.#exchange;
    this.#exchange = undefined;
    this.close();
    exchange?.onFailure(error, wasSent);
  }
}

const hungUp = () => Object.assign(new Error("the connection ended before the answer was whole"), { code: "ECONNRESET" });
