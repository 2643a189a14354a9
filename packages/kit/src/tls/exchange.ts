// One stream of HTTP/2 as a request of HTTP/1.1 to the proxy: bodies and trailers both ways, and an end that says how the answer ended.
import { randomBytes } from "node:crypto";
import { type ClientRequest, request as httpRequest, type IncomingMessage } from "node:http";
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from "node:http2";
import type { Duplex } from "node:stream";
import { memoryPair } from "./memory-pair.ts";
import { answerHeaders, type Closing, closingOf, type ExchangeParts, ofConnection } from "./stream-end.ts";

/** Headers that are said by other means towards the proxy, or that it sets itself. */
const notForwarded = new Set([...ofConnection, "host", "expect", "te"]);
const bodiless = new Set(["GET", "HEAD", "OPTIONS", "DELETE"]);
const EARLY_HINTS = 103;

export class Exchange {
  readonly #parts: ExchangeParts;
  #request: ClientRequest | undefined;
  #answer: IncomingMessage | undefined;
  readonly #closing: Closing;

  constructor(parts: ExchangeParts, onClose: () => void) {
    this.#parts = parts;
    const { stream } = parts;
    this.#closing = closingOf(stream, () => {
      this.#request?.destroy();
      onClose();
    });
    // A stream that is reset in the packets that opened it costs no request.
    setImmediate(() => {
      if (!stream.destroyed && !stream.aborted) this.#begin();
    });
  }

  get wasReset(): boolean {
    return this.#closing.wasReset;
  }

  #begin() {
    const { stream, headers, raw, origin, front } = this.#parts;
    const { ":method": method = "", ":path": path = "", ":authority": authority = headers.host ?? "" } = headers as Record<string, string | undefined>;
    const protocol = (headers as Record<string, string | undefined>)[":protocol"];
    if (method === "CONNECT" && protocol !== "websocket") return this.#refuse(501, "CONNECT is not served here, except for WebSockets (RFC 8441)");
    if (headers.host !== undefined && headers.host.toLowerCase() !== authority.toLowerCase())
      return this.#refuse(400, "Host and :authority name different hosts");
    if (!path.startsWith("/") && path !== "*") return this.#refuse(400, "the path does not begin with /");
    const [own, proxys] = memoryPair();
    own.on("error", () => {});
    const refusal = front.carry({ stream: proxys, peer: origin.peer, serves: origin.serves, reset: () => proxys.destroy(new Error("reset")) });
    if (refusal !== undefined) {
      proxys.destroy();
      return this.#refuse(503, "The server has as many requests of this address as it takes; try again");
    }
    const isSocket = protocol === "websocket";
    const lines = ["host", authority];
    for (let at = 0; at < raw.length; at += 2) {
      const name = raw[at] as string;
      if (!name.startsWith(":") && !notForwarded.has(name)) lines.push(name, raw[at + 1] as string);
    }
    if (isSocket)
      lines.push("connection", "Upgrade", "upgrade", "websocket", "sec-websocket-key", randomBytes(16).toString("base64"), "sec-websocket-version", "13");
    const hasBody = !isSocket && !stream.endAfterHeaders;
    if (hasBody && headers["content-length"] === undefined) lines.push("transfer-encoding", "chunked");
    else if (!hasBody && !isSocket && !bodiless.has(method) && headers["content-length"] === undefined) lines.push("content-length", "0");
    let request: ClientRequest;
    try {
      request = httpRequest({
        createConnection: () => own as never,
        method: isSocket ? "GET" : method,
        path,
        headers: lines as never,
        maxHeaderSize: 2 * front.limits.headBytes,
      });
    } catch (error) {
      own.destroy();
      return this.#refuse(400, `The request is malformed: ${(error as Error).message}`);
    }
    this.#request = request;
    if (headers.expect?.toLowerCase() === "100-continue") stream.additionalHeaders({ ":status": 100 });
    request.on("information", ({ statusCode, rawHeaders }) => {
      if (statusCode === EARLY_HINTS && !stream.headersSent && !stream.destroyed) stream.additionalHeaders(answerHeaders(statusCode, rawHeaders));
    });
    request.once("response", (response) => this.#respond(response));
    request.once("upgrade", (response: IncomingMessage, socket: Duplex, first: Buffer) => this.#join(response, socket, first));
    request.on("error", () => this.#cut());
    if (hasBody) this.#sendBody(request);
    else request.end();
  }

  #sendBody(request: ClientRequest): void {
    const { stream } = this.#parts;
    stream.on("trailers", (trailers: IncomingHttpHeaders) => {
      const given = Object.entries(trailers).filter(([name]) => !name.startsWith(":") && !notForwarded.has(name));
      if (given.length > 0 && !request.writableEnded) request.addTrailers(Object.fromEntries(given) as never);
    });
    // The proxy may answer without reading the rest, which is then read and dropped here.
    request.once("close", () => stream.resume());
    stream.pipe(request);
  }

  #respond(response: IncomingMessage) {
    const { stream } = this.#parts;
    if (stream.destroyed) return void response.destroy();
    this.#answer = response;
    const status = response.statusCode ?? 502;
    const headers = answerHeaders(status, response.rawHeaders);
    const hasNoBody = this.#request?.method === "HEAD" || status === 204 || status === 304;
    try {
      // Without a wait for trailers, closing a stream with an error would first send an orderly end.
      stream.respond(headers, { endStream: hasNoBody, waitForTrailers: !hasNoBody });
    } catch {
      // An application may send headers that HTTP/2 forbids, such as one Content-Type twice.
      return this.#cut();
    }
    if (hasNoBody) {
      this.#closing.hasEnded = true;
      response.resume();
      return;
    }
    stream.once("wantTrailers", () => {
      if (!this.#closing.isCut) stream.sendTrailers(response.trailers as OutgoingHttpHeaders);
    });
    response.once("error", () => this.#cut());
    response.once("aborted", () => this.#cut());
    response.on("data", (bytes: Buffer) => {
      if (!stream.write(bytes)) response.pause();
    });
    stream.on("drain", () => response.resume());
    response.once("end", () => {
      if (!response.complete) return this.#cut();
      this.#closing.hasEnded = true;
      stream.end();
    });
  }

  /** Joins the stream of an extended CONNECT with the upgraded connection. */
  #join(response: IncomingMessage, socket: Duplex, first: Buffer): void {
    const { stream } = this.#parts;
    if (stream.destroyed) return void socket.destroy();
    const headers = answerHeaders(200, response.rawHeaders);
    delete headers["sec-websocket-accept"];
    stream.respond(headers, { waitForTrailers: true });
    stream.once("wantTrailers", () => {
      if (!this.#closing.isCut) stream.sendTrailers({});
    });
    if (first.length > 0) stream.write(first);
    socket.on("error", () => this.#cut());
    socket.once("end", () => {
      this.#closing.hasEnded = true;
    });
    stream.once("close", () => socket.destroy());
    stream.pipe(socket);
    socket.pipe(stream);
  }

  /** The answer does not end as it should. */
  #cut(): void {
    const { stream } = this.#parts;
    if (this.#closing.hasEnded || stream.destroyed) return;
    this.#answer?.destroy();
    this.#closing.cut();
  }

  #refuse(status: number, message: string): void {
    const { stream } = this.#parts;
    this.#closing.hasEnded = true;
    const body = JSON.stringify({ message, code: status });
    stream.respond({ ":status": status, "content-type": "application/json", "content-length": Buffer.byteLength(body) });
    stream.end(body);
    stream.resume();
  }
}
