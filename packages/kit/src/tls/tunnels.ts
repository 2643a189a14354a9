// Connections of HTTP/2 to applications that speak gRPC: one per client session, host and credentials, through the proxy's own routing.
import { request as httpRequest, type IncomingMessage } from "node:http";
import { type ClientHttp2Session, connect } from "node:http2";
import type { Duplex } from "node:stream";
import type { Front } from "../proxy/front.ts";
import { DROP_HEADER, HOST_HEADER, TUNNEL } from "../proxy/h2c-tunnel.ts";
import { memoryPair } from "./memory-pair.ts";
import type { Origin } from "./stream-end.ts";

/** An open tunnel keeps its sandbox from being paused as idle, so an unused one is closed soon. */
const IDLE_MS = 4_000;
/** Tunnels of one session; an unused one gives way to another. */
const MAX_TUNNELS = 32;
const WINDOW_BYTES = 256 * 1024;
const SESSION_WINDOW_BYTES = 1024 * 1024;
const MAX_REFUSAL_BYTES = 64 * 1024;

export type Tunnel = {
  readonly session: ClientHttp2Session;
  /** Names of request headers that the application must not see. */
  readonly drops: ReadonlySet<string>;
  /** Replaces the host that the client named. */
  readonly host: string | undefined;
};

/** The proxy answered in place of the application. */
export class TunnelRefused extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export type TunnelRequest = {
  readonly authority: string;
  readonly path: string;
  /** The headers by which the proxy routes and admits a request, names and values in turn. */
  readonly credentials: readonly string[];
};

type Kept = { readonly tunnel: Promise<Tunnel>; session: ClientHttp2Session | undefined; calls: number; idle: NodeJS.Timeout | undefined };

export class Tunnels {
  readonly #front: Front;
  readonly #origin: Origin;
  readonly #kept = new Map<string, Kept>();

  constructor(front: Front, origin: Origin) {
    this.#front = front;
    this.#origin = origin;
  }

  /** Returns the tunnel for a call, which calls `done` once at its end. @throws TunnelRefused. */
  async take(request: TunnelRequest): Promise<Tunnel & { done(): void }> {
    // Requests with other credentials are admitted by themselves, so they never share a tunnel.
    const key = JSON.stringify([request.authority, request.credentials]);
    const kept = this.#kept.get(key) ?? this.#open(key, request);
    kept.calls++;
    clearTimeout(kept.idle);
    let isDone = false;
    const done = () => {
      if (isDone) return;
      isDone = true;
      kept.calls--;
      if (kept.calls === 0) kept.idle = setTimeout(() => this.#end(key, kept), IDLE_MS).unref();
    };
    try {
      return { ...(await kept.tunnel), done };
    } catch (error) {
      done();
      throw error;
    }
  }

  close(): void {
    for (const [key, kept] of [...this.#kept]) this.#end(key, kept);
  }

  #end(key: string, kept: Kept): void {
    clearTimeout(kept.idle);
    if (this.#kept.get(key) === kept) this.#kept.delete(key);
    kept.session?.destroy();
  }

  #open(key: string, request: TunnelRequest): Kept {
    if (this.#kept.size >= MAX_TUNNELS) {
      const unused = [...this.#kept].find(([, { calls }]) => calls === 0);
      if (unused === undefined) throw new TunnelRefused(429, `a connection reaches ${MAX_TUNNELS} gRPC servers at a time; open another one`);
      this.#end(...unused);
    }
    const forget = () => {
      if (this.#kept.get(key) === kept) this.#kept.delete(key);
    };
    const tunnel = this.#dial(request).then((opened) => {
      kept.session = opened.session;
      opened.session.once("close", forget);
      return opened;
    });
    tunnel.catch(forget);
    const kept: Kept = { tunnel, session: undefined, calls: 0, idle: undefined };
    this.#kept.set(key, kept);
    return kept;
  }

  #dial({ authority, path, credentials }: TunnelRequest): Promise<Tunnel> {
    const [own, proxys] = memoryPair();
    own.on("error", () => {});
    const { peer, serves } = this.#origin;
    const refusal = this.#front.carry({ stream: proxys, peer, serves, mayTunnel: true, reset: () => proxys.destroy(new Error("reset")) });
    if (refusal !== undefined) return Promise.reject(new TunnelRefused(503, "The server has as many connections as it takes; try again"));
    return new Promise((resolve, reject) => {
      const request = httpRequest({
        createConnection: () => own as never,
        path,
        headers: ["host", authority, ...credentials, "connection", "Upgrade", "upgrade", TUNNEL] as never,
      });
      request.once("upgrade", (response: IncomingMessage, socket: Duplex, first: Buffer) => {
        if (first.length > 0) socket.unshift(first);
        const session = connect(`http://${authority}`, {
          createConnection: () => socket,
          settings: { enablePush: false, initialWindowSize: WINDOW_BYTES },
        });
        session.on("error", () => {});
        session.once("connect", () => session.setLocalWindowSize(SESSION_WINDOW_BYTES));
        session.once("close", () => socket.destroy());
        const drops = new Set(String(response.headers[DROP_HEADER] ?? "").split(","));
        resolve({ session, drops, host: response.headers[HOST_HEADER] as string | undefined });
      });
      request.once("response", (response) => {
        let text = "";
        response.setEncoding("utf8").on("data", (piece: string) => {
          if (text.length < MAX_REFUSAL_BYTES) text += piece;
        });
        response.once("close", () => reject(new TunnelRefused(response.statusCode ?? 502, messageOf(text))));
      });
      request.once("error", (error) => reject(new TunnelRefused(502, error.message)));
      request.end();
    });
  }
}

function messageOf(text: string): string {
  try {
    const { message } = JSON.parse(text) as { message?: unknown };
    return typeof message === "string" ? message : text;
  } catch {
    return text.slice(0, 300);
  }
}
