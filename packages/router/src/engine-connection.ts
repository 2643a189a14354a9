// A connection to an engine, which carries one request after another. Heads are parsed by the proxy's own parser, and bodies pass as they come.
import { ByteBuffer } from "@svc/kit/byte-buffer.ts";
import { BodyScanner } from "@svc/kit/proxy/body-scanner.ts";
import { INCOMPLETE, REFUSED } from "@svc/kit/proxy/head-lines.ts";
import { proxyLimits } from "@svc/kit/proxy/limits.ts";
import { ResponseHead } from "@svc/kit/proxy/response-head.ts";
import { type Dial, HELD, Wire, type WireOwner } from "@svc/kit/proxy/wire.ts";

/** One request and what becomes of it. Either `onEnd` or `onFailure` is the last call, unless the exchange was aborted. */
export type Exchange = {
  readonly method: string;
  onConnect(): void;
  /** The head of the final answer, which is valid during the call only. */
  onHead(head: ResponseHead): void;
  /** The content that one read brought, one character per byte. */
  onBody(text: string): void;
  /** The answer is whole; `text` is the content that the last read brought. */
  onEnd(text: string): void;
  /** No whole answer will come. `isStale`: the connection had been kept, and the engine closed it before it sent a byte. */
  onFailure(error: NodeJS.ErrnoException, isStale: boolean): void;
};

/** The head has single-byte characters and ends with the empty line. A stream may go on long after its request was sent, so only this holds the body. */
export type Outgoing = { readonly head: string; readonly body: Buffer };

/** ```dialling ─▶ head ─▶ body ─▶ idle ─▶ head …; any ─▶ closed``` */
type State = "dialling" | "head" | "body" | "idle" | "closed";

/** Connections that are kept to one engine while they are idle. */
const IDLE_CONNECTIONS = 256;
/** Head and body up to this size are copied into one buffer, so that one write sends them. */
const JOINED_BYTES = 64 * 1024;
const MAX_INTERIM = 32;
const SWITCHING = 101;

/** All heads are parsed in one step, so that one parser serves all engines. */
const head = new ResponseHead(proxyLimits.headLines);

export class EngineConnections {
  readonly #dial: Dial;
  readonly #idle: EngineConnection[] = [];
  readonly #open = new Set<EngineConnection>();
  #isClosed = false;

  /** `url`: http://HOST:PORT without a path. `dial` opens connections to a server of the deployment by TLS instead. */
  constructor(url: string, dial?: Dial) {
    const { hostname, port } = new URL(url);
    this.#dial = dial ?? { host: hostname.replace(/^\[|\]$/g, ""), port: Number(port || 80), keepAlive: true };
  }

  /** Sends the request on the connection that was used last, or on a new one; `fresh` asks for a new one. */
  send(exchange: Exchange, request: Outgoing, fresh: boolean): EngineConnection {
    for (let kept = fresh ? undefined : this.#idle.pop(); kept !== undefined; kept = this.#idle.pop()) {
      if (!kept.isWritable) continue;
      kept.send(exchange, request);
      return kept;
    }
    const opened = new EngineConnection(this, this.#dial, exchange, request);
    this.#open.add(opened);
    return opened;
  }

  /** Returns false if the connection is not kept. */
  keep(connection: EngineConnection): boolean {
    if (this.#isClosed || this.#idle.length >= IDLE_CONNECTIONS) return false;
    this.#idle.push(connection);
    return true;
  }

  closed(connection: EngineConnection, wasIdle: boolean): void {
    this.#open.delete(connection);
    if (!wasIdle) return;
    const at = this.#idle.indexOf(connection);
    if (at >= 0) this.#idle.splice(at, 1);
  }

  /** Closes idle connections at once; the others end with their requests. */
  close(): void {
    this.#isClosed = true;
    for (const connection of [...this.#idle]) connection.abort();
  }
}

export class EngineConnection implements WireOwner {
  readonly #owner: EngineConnections;
  readonly #wire: Wire;
  readonly #scanner = new BodyScanner();
  #state: State = "dialling";
  #exchange: Exchange | undefined;
  /** The request, until there is a connection. */
  #unsent: Outgoing | undefined;
  /** The start of a head whose rest has not arrived. */
  #partialHead: ByteBuffer | undefined;
  #keepsAlive = false;
  #isReused = false;
  /** True once the engine sent a byte of the current answer. */
  #hasBegun = false;
  #interim = 0;
  #text = "";

  constructor(owner: EngineConnections, where: Dial, exchange: Exchange, request: Outgoing) {
    this.#owner = owner;
    this.#exchange = exchange;
    this.#unsent = request;
    this.#scanner.onData = (bytes, start, end) => this.#take(bytes as Buffer, start, end);
    this.#wire = Wire.dial(this, where);
  }

  get isDialling(): boolean {
    return this.#state === "dialling";
  }

  /** False once the connection is closing; the close event comes a little later. */
  get isWritable(): boolean {
    return this.#wire.socket.writable && !this.#wire.socket.readableEnded;
  }

  /** Sends the next request on an idle connection. */
  send(exchange: Exchange, request: Outgoing): void {
    this.#exchange = exchange;
    this.#isReused = true;
    this.#begin(request);
  }

  /** Makes the engine wait; what it sent before may still come. */
  pause(): void {
    this.#wire.pause(HELD);
  }

  resume(): void {
    this.#wire.resume(HELD);
  }

  /** Closes the connection, so that the engine notices that nobody waits for the answer. */
  abort(): void {
    this.#exchange = undefined;
    this.#close();
  }

  onConnect(): void {
    const request = this.#unsent;
    if (this.#state !== "dialling" || request === undefined) return;
    this.#unsent = undefined;
    this.#begin(request);
    this.#exchange?.onConnect();
  }

  onBytes(bytes: Buffer, length: number): void {
    this.#hasBegun = true;
    if (this.#state === "head") this.#readHead(bytes, length);
    else if (this.#state === "body") this.#readBody(bytes, 0, length);
    // No request is pending, so these bytes cannot belong to an answer.
    else if (this.#state === "idle") this.#close();
  }

  onEnd(): void {
    if (this.#state === "body" && this.#scanner.endsWithConnection) this.#finish(false);
    else this.#fail(hungUp());
  }

  onClose(error: NodeJS.ErrnoException | undefined): void {
    this.#fail(error ?? hungUp());
  }

  onDrain(): void {}

  #begin({ head: lines, body }: Outgoing): void {
    this.#state = "head";
    this.#hasBegun = false;
    this.#interim = 0;
    const { socket } = this.#wire;
    if (body.length === 0) this.#wire.write(lines);
    else if (lines.length + body.length <= JOINED_BYTES) {
      const whole = Buffer.allocUnsafe(lines.length + body.length);
      whole.write(lines, 0, "latin1");
      body.copy(whole, lines.length);
      socket.write(whole);
    } else {
      socket.cork();
      this.#wire.write(lines);
      socket.write(body);
      socket.uncork();
    }
  }

  #readHead(read: Buffer, length: number) {
    let bytes = read;
    let end = length;
    if (this.#partialHead !== undefined) {
      if (!this.#partialHead.appendToHead(read, 0, length, proxyLimits.headBytes)) return;
      ({ bytes } = this.#partialHead);
      end = bytes.length;
      this.#partialHead = undefined;
    }
    for (let start = 0; start < end; ) {
      const bodyAt = head.parse(bytes, start, end, this.#exchange?.method === "HEAD");
      if (bodyAt === REFUSED) return this.#fail(new Error(`its answer is malformed: ${head.problem}`));
      if (bodyAt === INCOMPLETE) {
        if (end - start >= proxyLimits.headBytes) return this.#fail(new Error(`the head of its answer is larger than ${proxyLimits.headBytes} bytes`));
        this.#partialHead = new ByteBuffer(bytes, start, end);
        this.#partialHead.headIncomplete();
        return;
      }
      start = bodyAt;
      if (head.status === SWITCHING) return this.#fail(new Error("it switches to another protocol, which no request of the router allows"));
      if (head.status < 200) {
        if (++this.#interim > MAX_INTERIM) return this.#fail(new Error(`it sent more than ${MAX_INTERIM} interim answers`));
        continue;
      }
      this.#keepsAlive = head.keepsAlive;
      this.#scanner.start(head.bodyBytes);
      this.#state = "body";
      this.#exchange?.onHead(head);
      // The exchange may have been aborted by its owner.
      if (this.#exchange !== undefined) this.#readBody(bytes, start, end);
      return;
    }
  }

  #readBody(bytes: Buffer, start: number, end: number) {
    const bodyEnd = this.#scanner.scan(bytes, start, end);
    if (bodyEnd < 0) return this.#fail(new Error("the chunks of its answer are malformed"));
    if (this.#scanner.endsWithConnection) this.#take(bytes, start, end);
    if (this.#scanner.done) return this.#finish(bodyEnd === end);
    const text = this.#text;
    this.#text = "";
    if (text !== "") this.#exchange?.onBody(text);
  }

  #take(bytes: Buffer, start: number, end: number): void {
    const text = bytes.toString("latin1", start, end);
    this.#text = this.#text === "" ? text : this.#text + text;
  }

  #finish(isClean: boolean): void {
    const exchange = this.#exchange;
    const text = this.#text;
    this.#exchange = undefined;
    this.#text = "";
    this.#wire.resume(HELD);
    // If the engine answered before it read the whole request, the rest of that request must not mix with the next one.
    if (isClean && this.#keepsAlive && this.#wire.socket.writableLength === 0 && this.#owner.keep(this)) this.#state = "idle";
    else this.#close();
    exchange?.onEnd(text);
  }

  #fail(error: NodeJS.ErrnoException): void {
    const exchange = this.#exchange;
    const isStale = this.#isReused && !this.#hasBegun && (error.code === "ECONNRESET" || error.code === "EPIPE");
    this.#exchange = undefined;
    this.#close();
    exchange?.onFailure(error, isStale);
  }

  #close(): void {
    if (this.#state === "closed") return;
    const wasIdle = this.#state === "idle";
    this.#state = "closed";
    this.#text = "";
    this.#unsent = undefined;
    this.#wire.destroy();
    this.#owner.closed(this, wasIdle);
  }
}

const hungUp = () => Object.assign(new Error("the connection ended before the answer was whole"), { code: "ECONNRESET" });
