// HTTP/1.1 through an opened connection: one upstream connection per client connection, bodies streamed, upgrades passed on.
import { Agent, createServer, type IncomingMessage, request as requestUpstream, type ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { authoritiesOf, hasHeader, hostAsked, requestHeaders, responseHeaders } from "./headers.ts";
import { type Opened, refusedBody } from "./opened.ts";

const MAX_HEADER_BYTES = 64 * 1024;
/** The upstream ends idle connections; this only bounds those that neither side ends. */
const KEEP_ALIVE_MS = 10 * 60_000;
const BODILESS = new Set(["GET", "HEAD", "DELETE", "OPTIONS", "TRACE"]);

/** Uses one connection for all requests of a client's connection. */
class OneConnection extends Agent {
  readonly #upstream: TLSSocket;

  constructor(upstream: TLSSocket) {
    super({ keepAlive: true, maxSockets: 1, maxFreeSockets: 1 });
    this.#upstream = upstream;
  }

  override createConnection(): Duplex {
    return this.#upstream;
  }
}

type Client = { readonly opened: Opened; readonly agent: Agent };

export interface Http1 {
  /** Serves the requests of a client's connection, until either side ends it. */
  serve(client: TLSSocket, opened: Opened): void;
}

export function openHttp1(): Http1 {
  const clients = new WeakMap<object, Client>();
  const server = createServer({
    maxHeaderSize: MAX_HEADER_BYTES,
    keepAliveTimeout: KEEP_ALIVE_MS,
    requestTimeout: 0,
    joinDuplicateHeaders: false,
  });
  server.on("request", (request, response) => void forward(request, response));
  server.on("checkContinue", (request, response) => void forward(request, response));
  server.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => void upgrade(request, socket, head));
  server.on("connect", (_request: IncomingMessage, socket: Duplex) => socket.end("HTTP/1.1 405 Method Not Allowed\r\nconnection: close\r\n\r\n"));
  server.on("clientError", (_error, socket: Duplex) => socket.destroy());

  function clientOf(request: IncomingMessage): Client {
    const client = clients.get(request.socket);
    if (client === undefined) throw new Error("a request arrived on a connection that is not open");
    return client;
  }

  async function forward(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { opened, agent } = clientOf(request);
    request.on("error", () => {});
    response.on("error", () => {});
    response.sendDate = false;
    const refuse = (status: number, why: string): void => {
      if (response.headersSent || response.destroyed) return void response.destroy();
      const body = refusedBody(why);
      response.writeHead(status, { "content-type": "text/plain; charset=utf-8", "content-length": Buffer.byteLength(body), connection: "close" }).end(body);
    };
    const admitted = await opened.admit(hostAsked(authoritiesOf(request.rawHeaders, request.url ?? "/")));
    if ("refused" in admitted) return refuse(admitted.status, admitted.refused);
    if (response.destroyed) return;

    const headers = requestHeaders(request.rawHeaders, admitted.headers);
    const hasBody = hasHeader(request.rawHeaders, "content-length") || hasHeader(request.rawHeaders, "transfer-encoding");
    if (!hasBody && !BODILESS.has(request.method ?? "")) headers.push("Content-Length", "0");
    const upstream = requestUpstream({
      agent,
      host: opened.name,
      method: request.method ?? "GET",
      path: request.url ?? "/",
      headers,
      maxHeaderSize: MAX_HEADER_BYTES,
    });
    upstream.on("continue", () => response.writeContinue());
    upstream.on("error", (error) => refuse(502, `${opened.name} ended the connection before its answer was complete: ${error.message}`));
    upstream.on("response", (answer) => {
      const headers = responseHeaders(answer.rawHeaders);
      if (/\bclose\b/i.test(answer.headers.connection ?? "")) headers.push("Connection", "close");
      response.writeHead(answer.statusCode ?? 502, answer.statusMessage, headers);
      answer.on("error", () => response.destroy());
      answer.on("end", () => {
        if (answer.rawTrailers.length > 0) response.addTrailers(pairsOf(answer.rawTrailers));
      });
      answer.pipe(response);
      // An answer whose body comes later, as of an event stream, must not wait for it.
      setImmediate(() => response.flushHeaders());
    });
    response.on("close", () => {
      if (!response.writableFinished) upstream.destroy();
    });
    if (!hasBody) return void upstream.end();
    request.on("end", () => {
      if (request.rawTrailers.length > 0) upstream.addTrailers(pairsOf(request.rawTrailers));
    });
    request.pipe(upstream);
    setImmediate(() => upstream.flushHeaders());
  }

  async function upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const { opened, agent } = clientOf(request);
    socket.on("error", () => {});
    const refuse = (status: number, why: string): void => {
      const body = refusedBody(why);
      socket.end(
        `HTTP/1.1 ${status} Refused\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
      );
    };
    const admitted = await opened.admit(hostAsked(authoritiesOf(request.rawHeaders, request.url ?? "/")));
    if ("refused" in admitted) return refuse(admitted.status, admitted.refused);
    const kept = ["connection", "upgrade"];
    const headers = requestHeaders(request.rawHeaders, admitted.headers, kept);
    const upstream = requestUpstream({
      agent,
      host: opened.name,
      method: request.method ?? "GET",
      path: request.url ?? "/",
      headers,
      maxHeaderSize: MAX_HEADER_BYTES,
    });
    upstream.on("error", (error) => refuse(502, `${opened.name} ended the connection before its answer was complete: ${error.message}`));
    upstream.on("upgrade", (answer, other, rest) => {
      other.on("error", () => socket.destroy());
      socket.write(headText(answer, responseHeaders(answer.rawHeaders, kept)));
      if (rest.length > 0) socket.write(rest);
      if (head.length > 0) other.write(head);
      socket.pipe(other).pipe(socket);
      socket.on("close", () => other.destroy());
      other.on("close", () => socket.destroy());
    });
    upstream.on("response", (answer) => {
      // Its body is already decoded, so its end is the connection's.
      const headers = responseHeaders(answer.rawHeaders).flatMap((_, at, all) =>
        at % 2 === 0 && all[at]?.toLowerCase() !== "transfer-encoding" ? [all[at] ?? "", all[at + 1] ?? ""] : [],
      );
      socket.write(headText(answer, [...headers, "Connection", "close"]));
      answer.pipe(socket);
    });
    socket.on("close", () => upstream.destroy());
    upstream.end();
  }

  return {
    serve(client, opened) {
      const agent = new OneConnection(opened.upstream);
      clients.set(client, { opened, agent });
      server.emit("connection", client);
    },
  };
}

function pairsOf(raw: readonly string[]): [string, string][] {
  return raw.flatMap((_, at) => (at % 2 === 0 ? [[raw[at] ?? "", raw[at + 1] ?? ""] as [string, string]] : []));
}

function headText({ statusCode, statusMessage }: IncomingMessage, headers: readonly string[]): string {
  const lines = pairsOf(headers).map(([name, value]) => `${name}: ${value}`);
  return `${[`HTTP/1.1 ${statusCode} ${statusMessage}`, ...lines].join("\r\n")}\r\n\r\n`;
}
