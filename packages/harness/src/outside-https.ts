// HTTPS for the simulated internet: answers with what it received, over HTTP/1.1 and HTTP/2, with streams, trailers and upgrades.
import { createHash } from "node:crypto";
import { createSecureServer, type Http2ServerRequest, type Http2ServerResponse } from "node:http2";
import type { Duplex } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { createSecureContext, type SecureContext } from "node:tls";

/** A certificate for each name that the server answers to. */
export type HttpsHost = { readonly name: string; readonly certificate: string; readonly key: string; readonly protocols?: readonly string[] };

const EVENT_MS = 200;
const WEBSOCKET_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/** Listens on every address; `onRequest` is called with each request's headers. */
export async function serveHttps(port: number, hosts: readonly HttpsHost[], onRequest: (text: string, peer: string) => void): Promise<void> {
  const contexts = new Map<string, SecureContext>(hosts.map(({ name, certificate, key }) => [name, createSecureContext({ cert: certificate, key })]));
  const protocolsOf = (name: string) => hosts.find((host) => host.name === name)?.protocols ?? ["h2", "http/1.1"];
  const server = createSecureServer({
    allowHTTP1: true,
    SNICallback: (name, done) => done(null, contexts.get(name)),
    ALPNCallback: ({ servername, protocols }) => protocolsOf(servername).find((protocol) => protocols.includes(protocol)),
  });
  server.on("sessionError", () => {});
  server.on("request", (request, response) => void answer(request, response, onRequest));
  server.on("upgrade", (request: Http2ServerRequest, socket: Duplex) => {
    onRequest(describe(request), request.socket.remoteAddress ?? "");
    const accept = createHash("sha1")
      .update(`${String(request.headers["sec-websocket-key"])}${WEBSOCKET_GUID}`)
      .digest("base64");
    socket.on("error", () => {});
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: ${accept}\r\n\r\n`);
    socket.pipe(socket);
  });
  await new Promise<void>((resolve, reject) => server.once("error", reject).listen(port, "0.0.0.0", resolve));
}

function drained(response: Http2ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      response.off("drain", done).off("close", done);
      resolve();
    };
    response.on("drain", done).on("close", done);
  });
}

const describe = ({ method, url, headers, httpVersion }: Http2ServerRequest): string =>
  JSON.stringify({ method, url, version: httpVersion, headers: Object.fromEntries(Object.entries(headers)) });

async function answer(request: Http2ServerRequest, response: Http2ServerResponse, onRequest: (text: string, peer: string) => void): Promise<void> {
  onRequest(describe(request), request.socket.remoteAddress ?? "");
  request.on("error", () => {});
  response.on("error", () => {});
  const [path = "", query = ""] = request.url.split("?");
  response.setHeader("alt-svc", 'h3=":443"');
  switch (path) {
    case "/echo":
      response.setHeader("x-received", String(request.headers["x-secret"] ?? ""));
      return void request.pipe(response);
    case "/bytes": {
      const chunk = Buffer.alloc(64 * 1024, "x");
      for (let left = Number(query); left > 0; left -= chunk.length) {
        const part = left < chunk.length ? chunk.subarray(0, left) : chunk;
        if (!response.write(part)) await drained(response);
      }
      return void response.end();
    }
    case "/events":
      response.setHeader("content-type", "text/event-stream");
      for (let event = 0; event < 3; event++) {
        response.write(`data: ${event}\n\n`);
        await sleep(EVENT_MS);
      }
      return void response.end();
    case "/trailers":
      response.setHeader("trailer", "x-sum");
      response.write("body");
      response.addTrailers({ "x-sum": "42" });
      return void response.end();
    case "/close":
      if (request.httpVersion === "1.1") response.setHeader("connection", "close");
      return void response.end("bye");
    default:
      response.setHeader("content-type", "application/json");
      response.end(`${describe(request)}\n`);
  }
}
