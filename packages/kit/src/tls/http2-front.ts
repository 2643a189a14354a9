// Sessions of HTTP/2: each stream becomes a request of HTTP/1.1 to the proxy in this process, within bounds on streams, headers and resets.
import { constants, type Http2Session, type IncomingHttpHeaders, performServerHandshake, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { Duplex } from "node:stream";
import type { Metrics } from "../metrics.ts";
import type { Front } from "../proxy/front.ts";
import type { PeerConnection } from "../proxy/peers.ts";
import { TokenBucket } from "../token-bucket.ts";
import { Exchange } from "./exchange.ts";
import { GrpcCall, isGrpc } from "./grpc-call.ts";
import type { Origin } from "./stream-end.ts";
import { Tunnels } from "./tunnels.ts";

export type Http2FrontOptions = { readonly front: Front; readonly metrics: Metrics };

const WINDOW_BYTES = 256 * 1024;
const SESSION_WINDOW_BYTES = 1024 * 1024;
const MAX_STREAMS = 128;
/** Header lines of one request; the pseudo-headers count, too. */
const HEADER_LINES = 256;
const SESSION_MEMORY_MB = 10;
/** Streams that one address may reset, over all its sessions: clients reset when they stop reading, never hundreds of times a second. */
const RESETS = { perSecond: 100, burst: 500 };
/** The oldest addresses are forgotten beyond this number. */
const MAX_PEERS = 4_096;
const SWEEP_MS = 5_000;

export class Http2Front {
  readonly #options: Http2FrontOptions;
  readonly #sessions = new Set<Session>();
  readonly #resets = new Map<string, TokenBucket>();
  readonly #floods: { inc(by?: number): void };
  readonly #sweeper: NodeJS.Timeout;
  #isDraining = false;

  constructor(options: Http2FrontOptions) {
    this.#options = options;
    const { metrics, front } = options;
    metrics.gauge("svc_http2_sessions", "Open connections of HTTP/2.", [], (gauge) => gauge.set(this.#sessions.size));
    metrics.gauge("svc_http2_streams", "Open requests and streams over HTTP/2.", [], (gauge) => gauge.set(this.#streams));
    this.#floods = metrics.counter("svc_http2_floods_total", "Connections of HTTP/2 that were ended because the client reset too many streams.");
    this.#sweeper = setInterval(() => {
      const now = performance.now();
      for (const session of this.#sessions) session.sweep(now, front.limits.idleMs);
    }, SWEEP_MS).unref();
  }

  get #streams(): number {
    let streams = 0;
    for (const session of this.#sessions) streams += session.streams;
    return streams;
  }

  serve(socket: Duplex, origin: Origin): void {
    const { front } = this.#options;
    const session = new Session(socket, origin, {
      front,
      onReset: () => this.#countReset(session),
      onClose: () => {
        this.#sessions.delete(session);
        front.release(session);
      },
    });
    if (front.admit(session) !== undefined) {
      session.refuse();
      return;
    }
    this.#sessions.add(session);
    if (this.#isDraining) session.drain();
  }

  #countReset(session: Session): void {
    const { peer } = session;
    const now = performance.now();
    const bucket = this.#resets.get(peer) ?? new TokenBucket(RESETS, now);
    this.#resets.delete(peer);
    this.#resets.set(peer, bucket);
    if (this.#resets.size > MAX_PEERS) this.#resets.delete(this.#resets.keys().next().value as string);
    if (bucket.take(now)) return;
    this.#floods.inc();
    session.refuse();
  }

  drain(): void {
    this.#isDraining = true;
    for (const session of this.#sessions) session.drain();
  }

  close(): void {
    clearInterval(this.#sweeper);
    for (const session of this.#sessions) session.wire.destroy();
  }
}

type SessionParts = { readonly front: Front; readonly onReset: () => void; readonly onClose: () => void };

class Session implements PeerConnection {
  readonly peer: string;
  readonly wire: { destroy(): void };
  readonly #http2: ServerHttp2Session;
  readonly #exchanges = new Set<Exchange | GrpcCall>();
  #idleSince = performance.now();

  constructor(socket: Duplex, origin: Origin, { front, onReset, onClose }: SessionParts) {
    this.peer = origin.peer;
    const { limits } = front;
    const session = performServerHandshake(socket, {
      maxSessionMemory: SESSION_MEMORY_MB,
      maxHeaderListPairs: HEADER_LINES,
      maxOutstandingPings: 4,
      maxSettings: 32,
      settings: {
        maxConcurrentStreams: MAX_STREAMS,
        initialWindowSize: WINDOW_BYTES,
        maxHeaderListSize: limits.headBytes,
        enableConnectProtocol: true,
      },
    } as Parameters<typeof performServerHandshake>[1]);
    this.#http2 = session;
    this.wire = { destroy: () => session.destroy() };
    session.on("error", () => {});
    session.once("connect", () => widen(session));
    const tunnels = new Tunnels(front, origin);
    session.once("close", () => {
      socket.destroy();
      tunnels.close();
      onClose();
    });
    session.on("stream", (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, _flags: number, raw: readonly string[]) => {
      const parts = { stream, headers, raw, origin, front };
      const onEnd = () => {
        this.#exchanges.delete(exchange);
        this.#idleSince = performance.now();
        if (exchange.wasReset) onReset();
      };
      const exchange: Exchange | GrpcCall = isGrpc(headers) ? new GrpcCall(parts, tunnels, onEnd) : new Exchange(parts, onEnd);
      this.#exchanges.add(exchange);
    });
  }

  get streams(): number {
    return this.#exchanges.size;
  }

  get mayGiveWay(): boolean {
    return this.#exchanges.size === 0;
  }

  /** Ends the session at once, and says that the client did too much. */
  refuse(): void {
    if (!this.#http2.destroyed) this.#http2.destroy(undefined, constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }

  /** Announces that no more streams are taken; the session ends after the last one. */
  drain(): void {
    if (!this.#http2.closed) this.#http2.close();
  }

  sweep(now: number, idleMs: number): void {
    if (this.#exchanges.size === 0 && now - this.#idleSince > idleMs) this.drain();
  }
}

/** The window of the whole connection begins at 64 KiB, which would bound all uploads of a session together. */
function widen(session: Http2Session): void {
  if (!session.destroyed) session.setLocalWindowSize(SESSION_WINDOW_BYTES);
}
