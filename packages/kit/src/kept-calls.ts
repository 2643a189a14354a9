// Sends calls to servers of this deployment over persistent connections, so that a request after a pause need not wait for a new one.
import type { Send, Sending, Sent } from "@svc/contract/call.ts";
import { Failure } from "@svc/contract/failures.ts";
import { type Exchange, KeptConnection, type Received } from "./kept-connection.ts";
import type { PeerClient } from "./peers/peer-client.ts";
import { proxyLimits } from "./proxy/limits.ts";
import { ResponseHead } from "./proxy/response-head.ts";
import type { Dial } from "./proxy/wire.ts";

export interface KeptCalls {
  readonly send: Send;
  /** Stops using all connections to the server at this URL, because the server is lost. */
  drop(baseURL: string): void;
  close(): void;
}

/** The code of a failure whose request the server cannot have received completely. */
export const NOT_CONNECTED = "NOT_CONNECTED";

/** This is shorter than a node's own limit, so that we close idle connections first. */
const IDLE_MS = 30_000;
const CONNECT_MS = 10_000;
const IDLE_PER_SERVER = 64;
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

type Server = { readonly connect: Dial; readonly idle: KeptConnection[]; isLost: boolean };

/** `connectMs` limits how long a new connection may take; `peers` reaches the servers whose URL begins with https. */
export function openKeptCalls({ connectMs = CONNECT_MS, peers }: { readonly connectMs?: number; readonly peers?: PeerClient | undefined } = {}): KeptCalls {
  const servers = new Map<string, Server>();
  const open = new Set<KeptConnection>();
  const head = new ResponseHead(proxyLimits.headLines);

  function serverAt(origin: string): Server {
    const known = servers.get(origin);
    if (known !== undefined) return known;
    const server = { connect: kept(dialled(origin, peers)), idle: [], isLost: false };
    servers.set(origin, server);
    return server;
  }

  function carry(server: Server, exchange: Exchange): KeptConnection {
    for (let idle = server.idle.pop(); idle !== undefined; idle = server.idle.pop()) {
      if (!idle.isWritable) continue;
      idle.send(exchange);
      return idle;
    }
    const forget = (connection: KeptConnection) => {
      open.delete(connection);
      const index = server.idle.indexOf(connection);
      if (index >= 0) server.idle.splice(index, 1);
    };
    const bounds = { maxAnswerBytes: MAX_ANSWER_BYTES, idleMs: IDLE_MS };
    const opened = new KeptConnection({ connect: server.connect, head, ...bounds, onClosed: forget }, exchange);
    open.add(opened);
    return opened;
  }

  function keep(server: Server, connection: KeptConnection): void {
    if (server.isLost || server.idle.length >= IDLE_PER_SERVER) connection.close();
    else server.idle.push(connection);
  }

  return {
    async send(sending) {
      const { url, method, signals, timeoutMs } = sending;
      const { origin, request } = requestOf(sending);
      const server = serverAt(origin);
      return new Promise<Sent>((resolve, reject) => {
        let connecting: NodeJS.Timeout | undefined;
        let connection: KeptConnection | undefined;
        if (signals.some(({ aborted }) => aborted)) return reject(notConnected(abortError()));
        const abort = () => connection?.abort(abortError());
        const late = setTimeout(() => connection?.abort(new Failure("TIMED_OUT", `${method} ${url}: no answer in time`)), timeoutMs);
        const settle = () => {
          clearTimeout(late);
          clearTimeout(connecting);
          for (const signal of signals) signal.removeEventListener("abort", abort);
        };
        for (const signal of signals) signal.addEventListener("abort", abort);
        const begin = () => {
          const opened = carry(server, {
            method,
            request,
            onAnswer(received, again) {
              settle();
              if (again !== undefined) keep(server, again);
              resolve(sentOf(received));
            },
            onFailure(error, wasSent) {
              // A kept connection that had already closed unnoticed says nothing about its server, so we try another one.
              if (!wasSent && !isNew) return begin();
              settle();
              reject(wasSent || error instanceof Failure ? error : notConnected(error));
            },
          });
          const isNew = opened.isDialling;
          connection = opened;
          if (!isNew) return;
          connecting = setTimeout(() => {
            if (opened.isDialling) opened.abort(new Error(`no connection within ${connectMs} ms`));
          }, connectMs);
        };
        begin();
      });
    },
    drop(baseURL) {
      const { origin } = new URL(baseURL);
      const server = servers.get(origin);
      if (server === undefined) return;
      servers.delete(origin);
      server.isLost = true;
      // Connections in use end with their calls, which the caller aborts.
      for (const connection of [...server.idle]) connection.close();
    },
    close() {
      for (const connection of [...open]) connection.abort(abortError());
      servers.clear();
    },
  };
}

/** The destination, and the head and body as they are sent. @throws TypeError for an invalid header or URL. */
function requestOf({ url, method, headers, body }: Sending): { origin: string; request: string | Buffer } {
  const [, scheme = "", authority = "", path = ""] = /^(https?):\/\/([^/?#]+)([^#]*)/.exec(url) ?? [];
  const origin = authority === "" ? "" : new URL(`${scheme}://${authority}`).origin;
  if (authority === "" || authority.includes("@") || !printable.test(path)) throw new TypeError(`expected http://HOST:PORT/…, got ${JSON.stringify(url)}`);
  let head = `${method} ${path.startsWith("/") ? path : `/${path}`} HTTP/1.1\r\n`;
  // A caller may pass the Host header of its own client.
  const isNamed = Object.keys(headers).some((name) => name.toLowerCase() === "host");
  for (const [name, value] of Object.entries(isNamed ? headers : { host: authority, ...headers })) {
    if (!headerName.test(name) || !headerValue.test(value)) throw new TypeError(`the header ${JSON.stringify(name)} has characters that no header may have`);
    head += `${name}: ${value}\r\n`;
  }
  const bodyBytes = body === undefined ? 0 : Buffer.byteLength(body);
  if (body !== undefined || method !== "GET") head += `content-length: ${bodyBytes}\r\n`;
  head += "\r\n";
  if (body === undefined) return { origin, request: head };
  const isSingleByte = bodyBytes === body.length;
  return { origin, request: isSingleByte ? head + body : Buffer.concat([Buffer.from(head, "latin1"), Buffer.from(body)]) };
}

function dialled(origin: string, peers: PeerClient | undefined): Dial {
  if (peers !== undefined) return peers.dial(origin);
  const { protocol, hostname, port } = new URL(origin);
  if (protocol !== "http:") throw new TypeError(`expected http://HOST:PORT/…, got ${JSON.stringify(origin)}`);
  return { host: hostname.replace(/^\[|\]$/g, ""), port: Number(port || 80) };
}

const kept = (dial: Dial): Dial => (typeof dial === "function" ? (options) => dial({ ...options, keepAlive: true }) : { ...dial, keepAlive: true });

const printable = /^[\x21-\x7e]*$/;
const headerName = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const headerValue = /^[\t\x20-\x7e\x80-\xff]*$/;

function sentOf({ status, head, text }: Received): Sent {
  return {
    status,
    text,
    // Most callers never read the headers, so they are parsed on demand.
    get headers() {
      const lines = head.split("\r\n").filter((line, index) => index > 0 && line !== "");
      return new Headers(lines.map((line): [string, string] => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)]));
    },
  };
}

const abortError = () => Object.assign(new Error("the call was aborted"), { name: "AbortError", code: "ABORT_ERR" });

const notConnected = (cause: Error) => Object.assign(new Error(cause.message, { cause }), { code: NOT_CONNECTED });
