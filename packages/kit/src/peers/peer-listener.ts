// A port for the other servers of the deployment: ends mutual TLS, and hands each connection over with the protocol that its client chose.
import { constants } from "node:crypto";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer, type TLSSocket, type Server as TlsServer } from "node:tls";
import type { ListenAddress } from "../listen.ts";
import type { Log } from "../log.ts";
import type { PeerCertificates, PeerPair } from "./peer-certificates.ts";

/** A connection whose bytes arrive decrypted. */
export type PeerConnection = {
  readonly socket: Socket;
  /** The protocol of ALPN; the first of the listener's where the client named none. */
  readonly protocol: string;
  /** Set if the client has no certificate of the deployment: the reason to refuse it with. */
  readonly stranger?: string;
  /** Ends the connection such that the client notices. */
  reset(): void;
};

export type PeerListenerOptions = {
  readonly listen: ListenAddress;
  readonly certificates: PeerCertificates;
  /** The names of ALPN that are served. */
  readonly protocols: readonly string[];
  /** Names this port in the log. */
  readonly what: string;
  readonly log: Log;
  take(connection: PeerConnection): void;
  /** Absent: callers without TLS are refused. */
  readonly takePlain?: ((connection: PeerConnection) => void) | undefined;
};

/** The first byte of a TLS record with a handshake. */
const HANDSHAKE = 0x16;
const HANDSHAKE_MS = 10_000;
/** Beyond this number of unfinished handshakes, the oldest one is ended. */
const MAX_HANDSHAKES = 1024;
const BACKLOG = 1024;
/** A refused caller usually retries; it is logged this often. */
const LOG_EVERY_MS = 10_000;
const PLAIN_HTTP = /^[A-Z]{3,10} \//;

export class PeerListener {
  readonly #options: PeerListenerOptions;
  readonly #server: Server;
  readonly #tls: TlsServer;
  readonly #unfinished = new Map<Socket, NodeJS.Timeout>();
  readonly #open = new Set<Socket>();
  #loggedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: PeerListenerOptions) {
    const { certificates, protocols } = options;
    this.#options = options;
    this.#server = createServer({ pauseOnConnect: true, noDelay: true, keepAlive: true, keepAliveInitialDelay: 60_000 }, (socket) => this.#accept(socket));
    this.#tls = createTlsServer(
      { ...contextOf(certificates.pair), requestCert: true, rejectUnauthorized: false, ALPNProtocols: [...protocols], handshakeTimeout: 2 * HANDSHAKE_MS },
      (socket) => this.#secured(socket),
    );
    this.#tls.on("tlsClientError", (_error, socket) => rawOf(socket)?.destroySoon());
    certificates.onChange((pair) => this.#tls.setSecureContext(contextOf(pair)));
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Resolves when the port is open; a failure is that of the system. */
  async listen(): Promise<void> {
    const { host, port } = this.#options.listen;
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen({ host, port, backlog: BACKLOG }, () => {
        this.#server.off("error", reject);
        resolve();
      });
    });
    this.#server.on("error", (error) => this.#options.log.error({ err: error }, `the port of ${this.#options.what} had an error`));
  }

  #accept(socket: Socket): void {
    socket.on("error", () => {});
    const [oldest] = this.#unfinished.size >= MAX_HANDSHAKES ? this.#unfinished.keys() : [];
    oldest?.destroy();
    this.#unfinished.set(
      socket,
      setTimeout(() => socket.destroy(), HANDSHAKE_MS),
    );
    this.#open.add(socket);
    socket.once("close", () => {
      this.#settle(socket);
      this.#open.delete(socket);
    });
    socket.once("readable", () => {
      const first = socket.read() as Buffer | null;
      if (first === null || socket.destroyed) return;
      if (first[0] !== HANDSHAKE) return this.#plain(socket, first);
      socket.unshift(first);
      this.#tls.emit("connection", socket);
    });
  }

  /** The handshake of this connection is complete, or it ended. */
  #settle(socket: Socket): boolean {
    clearTimeout(this.#unfinished.get(socket));
    return this.#unfinished.delete(socket);
  }

  #plain(socket: Socket, first: Buffer): void {
    const { takePlain, protocols, certificates } = this.#options;
    this.#settle(socket);
    if (takePlain !== undefined) {
      socket.unshift(first);
      takePlain({ socket, protocol: protocols[0] as string, reset: () => socket.resetAndDestroy() });
      return;
    }
    const says = `This port expects TLS with a certificate of its deployment, signed by ${certificates.authorities}, and got none of TLS: use https:// in its URL, and give the caller --peer-certs DIR (svc certs issue writes it)`;
    this.#refused(socket, says);
    if (!PLAIN_HTTP.test(first.toString("latin1", 0, 16))) return void socket.destroy();
    const body = JSON.stringify({ code: 400, message: says, error: says });
    socket.end(
      `HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
      () => socket.destroySoon(),
    );
    socket.resume();
  }

  #secured(socket: TLSSocket): void {
    const raw = rawOf(socket);
    socket.on("error", () => {});
    if (raw === undefined || !this.#settle(raw)) return void socket.destroy();
    const { certificates, protocols, take } = this.#options;
    const stranger = certificates.strangerAt(socket);
    if (stranger !== undefined) this.#refused(socket, stranger);
    const { alpnProtocol } = socket;
    take({
      socket,
      protocol: typeof alpnProtocol === "string" ? alpnProtocol : (protocols[0] as string),
      ...(stranger === undefined ? {} : { stranger }),
      reset: () => (raw.destroyed ? socket.destroy() : raw.resetAndDestroy()),
    });
  }

  #refused(socket: Socket, reason: string): void {
    const nowMs = performance.now();
    if (nowMs < this.#loggedAtMs + LOG_EVERY_MS) return;
    this.#loggedAtMs = nowMs;
    const { log, what, certificates } = this.#options;
    log.warn({ caller: socket.remoteAddress, own: certificates.described, reason }, `a caller of ${what} was refused`);
  }

  /** Accepts no more connections. */
  stop(): void {
    this.#server.close();
    for (const socket of this.#unfinished.keys()) socket.destroy();
  }

  close(): void {
    this.stop();
    for (const socket of this.#open) socket.destroy();
  }
}

/** A resumed session would skip the check of the client's certificate, so no sessions are kept. */
const contextOf = ({ cert, key, ca }: PeerPair) => ({ cert, key, ca, minVersion: "TLSv1.2" as const, secureOptions: constants.SSL_OP_NO_TICKET });

/** Node keeps the connection under a TLS socket in this member, which its types do not name. */
const rawOf = (socket: Socket): Socket | undefined => (socket as unknown as { _parent?: Socket })._parent;
