// The listener for TLS: bounds handshakes, then hands each connection, as HTTP/1.1 or HTTP/2, to the proxy behind it.
import { constants } from "node:crypto";
import { createServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer, type TLSSocket, type Server as TlsServer } from "node:tls";
import type { Log } from "../log.ts";
import type { Metrics } from "../metrics.ts";
import { answer, renderAnswer } from "../proxy/answer.ts";
import { peerOf } from "../proxy/connection-owner.ts";
import type { Front } from "../proxy/front.ts";
import type { PeerConnection } from "../proxy/peers.ts";
import { SlowHeads } from "../proxy/slow-heads.ts";
import { Http2Front } from "./http2-front.ts";
import type { ServedCertificates, ServedPair } from "./served.ts";

/** Bounds of everything before a connection is decrypted. */
export type TlsLimits = {
  /** From the first packet of a connection until it can carry requests. */
  readonly handshakeMs: number;
  /** Unfinished handshakes; beyond it, the oldest of the address with the most is ended. */
  readonly handshakes: number;
  readonly handshakesPerPeer: number;
  /** Unfinished handshakes that begin at once; beyond it, addresses begin theirs in rotation, some per tick. */
  readonly freeHandshakes: number;
};

export const tlsLimits: TlsLimits = {
  // I24
  handshakeMs: 10_000,
  handshakes: 1024,
  handshakesPerPeer: 512,
  freeHandshakes: 32,
};

export type SecureFrontOptions = {
  readonly listen: { readonly host: string; readonly port: number };
  readonly certificates: ServedCertificates;
  readonly front: Front;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly limits?: Partial<TlsLimits> | undefined;
};

/** The first byte of a TLS record with a handshake. */
const HANDSHAKE = 0x16;
const protocols = ["h2", "http/1.1"];
const outcomes = ["http/1.1", "h2", "failed", "timed_out", "refused", "plain_http"] as const;
type Outcome = (typeof outcomes)[number];

const plainHTTP = renderAnswer(
  answer(400, "This port speaks TLS, and got plain HTTP: use https:// in the URL, for an SDK in E2B_API_URL and E2B_SANDBOX_URL, for svc in SVC_URL"),
  false,
  false,
);

export class SecureFront {
  readonly #options: SecureFrontOptions;
  readonly #limits: TlsLimits;
  readonly #server: Server;
  readonly #tls: TlsServer;
  readonly #http2: Http2Front;
  readonly #handshakes: SlowHeads;
  readonly #open = new Map<Socket, Handshake>();
  readonly #connections: { inc(labels: { outcome: Outcome }, by?: number): void };

  constructor(options: SecureFrontOptions) {
    const { certificates, metrics, front } = options;
    this.#options = options;
    this.#limits = { ...tlsLimits, ...options.limits };
    this.#server = createServer({ pauseOnConnect: true, allowHalfOpen: true, noDelay: true, keepAlive: true, keepAliveInitialDelay: 60_000 }, (socket) =>
      this.#accept(socket),
    );
    // The handshake's own limit also covers the time that a connection waits for its turn, so the one of the library is only the last resort.
    const asksClients = certificates.pair.ca !== undefined;
    const clients = asksClients ? { requestCert: true, rejectUnauthorized: false, ALPNProtocols: ["http/1.1"] } : { ALPNProtocols: protocols };
    this.#tls = createTlsServer({ ...contextOf(certificates.pair), ...clients, handshakeTimeout: 2 * this.#limits.handshakeMs }, (socket) =>
      this.#secured(socket),
    );
    this.#tls.on("tlsClientError", (_error, socket) => this.#failed(rawOf(socket)));
    certificates.onChange((pair) => this.#tls.setSecureContext(contextOf(pair)));
    this.#http2 = new Http2Front({ front, metrics });
    this.#handshakes = new SlowHeads({ unfinishedHeads: this.#limits.handshakes, unfinishedHeadsPerPeer: this.#limits.handshakesPerPeer });
    this.#connections = metrics.counter("svc_tls_connections_total", "Connections to the port of TLS, by what became of their handshake.", ["outcome"]);
    for (const outcome of outcomes) this.#connections.inc({ outcome }, 0);
    metrics.gauge("svc_tls_handshakes", "Connections whose handshake is not complete.", [], (gauge) => gauge.set(this.#open.size));
  }

  async listen(): Promise<{ host: string; port: number }> {
    const { host, port } = this.#options.listen;
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen({ host, port, backlog: 1024 }, () => {
        this.#server.off("error", reject);
        resolve();
      });
    });
    this.#server.on("error", (error) => this.#options.log.error({ err: error }, "the listener for TLS had an error"));
    const bound = this.#server.address();
    return typeof bound === "object" && bound !== null ? { host: bound.address, port: bound.port } : { host, port };
  }

  #accept(socket: Socket): void {
    socket.on("error", () => {});
    const handshake = new Handshake(socket, this.#limits.handshakeMs, {
      begin: () => this.#begin(handshake),
      end: (outcome) => this.#end(handshake, outcome),
    });
    if (this.#options.front.admit(handshake) !== undefined) {
      this.#connections.inc({ outcome: "refused" });
      handshake.cancel();
      socket.destroy();
      return;
    }
    this.#open.set(socket, handshake);
    socket.once("close", () => this.#end(handshake, "failed"));
    this.#handshakes.enter(handshake);
    if (this.#open.size <= this.#limits.freeHandshakes) this.#begin(handshake);
    else this.#handshakes.wait(handshake);
  }

  /** The first bytes show whether the client speaks TLS; what was read is given to TLS with the socket. */
  #begin(handshake: Handshake): void {
    const { socket } = handshake;
    socket.once("readable", () => {
      const first = socket.read() as Buffer | null;
      if (first === null || socket.destroyed) return;
      if (first[0] !== HANDSHAKE) {
        this.#end(handshake, "plain_http");
        socket.end(plainHTTP, "latin1", () => socket.destroySoon());
        socket.resume();
        return;
      }
      socket.unshift(first);
      this.#tls.emit("connection", socket);
    });
  }

  #secured(socket: TLSSocket) {
    const raw = rawOf(socket);
    const handshake = raw === undefined ? undefined : this.#open.get(raw);
    socket.on("error", () => {});
    if (raw === undefined || handshake === undefined) {
      socket.destroy();
      return;
    }
    const { front, certificates } = this.#options;
    const isHttp2 = socket.alpnProtocol === "h2";
    this.#end(handshake, isHttp2 ? "h2" : "http/1.1");
    const stranger = certificates.strangerAt?.(socket);
    const { servername } = socket as { servername?: string | false };
    const asked = typeof servername === "string" ? servername.toLowerCase() : undefined;
    const serves = (host: string) => asked === undefined || isSame(host, asked) || certificates.covers(bareHost(host));
    const reset = () => (raw.destroyed ? socket.destroy() : raw.resetAndDestroy());
    if (isHttp2) return this.#http2.serve(socket, { peer: handshake.peer, serves, reset });
    const refusal = front.carry({ stream: socket, peer: handshake.peer, reset, serves, ...(stranger === undefined ? {} : { stranger }) });
    if (refusal !== undefined) socket.end(refusal, "latin1", () => socket.destroy());
  }

  #failed(raw: Socket | undefined): void {
    const handshake = raw === undefined ? undefined : this.#open.get(raw);
    if (handshake === undefined) return;
    this.#end(handshake, "failed");
    // The alert that says why is sent first.
    raw?.destroySoon();
  }

  /** Called once per connection that was admitted, however its handshake ends. */
  #end(handshake: Handshake, outcome: Outcome): void {
    if (!this.#open.delete(handshake.socket)) return;
    handshake.cancel();
    this.#handshakes.leave(handshake);
    this.#options.front.release(handshake);
    this.#connections.inc({ outcome });
  }

  /** Accepts no more connections and asks the clients of open ones to send no more requests; the front waits for those in flight. */
  stopAccepting(): void {
    this.#server.close();
    for (const socket of [...this.#open.keys()]) socket.destroy();
    this.#http2.drain();
  }

  close(): void {
    this.#handshakes.close();
    this.#http2.close();
  }
}

/** A session that a client resumes would skip the check of its certificate, so sessions of clients with certificates are not kept. */
const contextOf = ({ cert, key, ca }: ServedPair) => ({
  cert,
  key,
  minVersion: "TLSv1.2" as const,
  ...(ca === undefined ? {} : { ca, secureOptions: constants.SSL_OP_NO_TICKET }),
});

/** A connection that is not decrypted yet. */
class Handshake implements PeerConnection {
  readonly socket: Socket;
  readonly peer: string;
  readonly mayGiveWay = true;
  readonly wire: { destroy(): void };
  readonly #on: { begin(): void; end(outcome: Outcome): void };
  readonly #timer: NodeJS.Timeout;

  constructor(socket: Socket, limitMs: number, on: { begin(): void; end(outcome: Outcome): void }) {
    this.socket = socket;
    this.peer = peerOf(socket);
    this.#on = on;
    this.wire = { destroy: () => socket.destroy() };
    this.#timer = setTimeout(() => {
      on.end("timed_out");
      socket.destroy();
    }, limitMs).unref();
  }

  goOn(): void {
    if (!this.socket.destroyed) this.#on.begin();
  }

  giveUp(): void {
    this.#on.end("refused");
    this.socket.destroy();
  }

  cancel(): void {
    clearTimeout(this.#timer);
  }
}

/** Node keeps the connection under a TLS socket in this member, which its types do not name. */
const rawOf = (socket: TLSSocket): Socket | undefined => (socket as unknown as { _parent?: Socket })._parent;

const bareHost = (host: string): string =>
  host
    .toLowerCase()
    .replace(/:\d*$/, "")
    .replace(/^\[|\]$/g, "")
    .replace(/\.$/, "");
const isSame = (host: string, asked: string): boolean => bareHost(host) === asked;
