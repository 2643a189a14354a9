// The listener: accepts every connection, bounds their number and their waits, and closes them in order.
import { createServer, type Server, type Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { answer } from "./answer.ts";
import type { Carried } from "./carried.ts";
import { ClientConnection } from "./client.ts";
import { type ConnectionOwner, peerOf } from "./connection-owner.ts";
import type { Decision, RoutedClient } from "./decision.ts";
import type { ProxyLimits } from "./limits.ts";
import { type PeerConnection, Peers } from "./peers.ts";
import { Pipelined } from "./pipelined.ts";
import { HOST, type RequestHead } from "./request-head.ts";
import { SlowHeads } from "./slow-heads.ts";
import type { UpstreamPool } from "./target.ts";

export type FrontOptions = {
  readonly listen: { readonly host: string; readonly port: number };
  readonly limits: ProxyLimits;
  readonly pool: UpstreamPool;
  /** Parses the heads of all connections, one at a time; knows the names that the router uses. */
  readonly head: RequestHead;
  /** Decides on one request. `head` is valid during the call only. */
  readonly route: (head: RequestHead, client: RoutedClient) => Decision;
  /** Says whether the request may come from a client without a certificate where the listener expects one; absent: none may. */
  readonly isOpen?: ((head: RequestHead) => boolean) | undefined;
  /** Called at the end of each request; `kind` is -1 if it was answered here, `status` 0 if the client left before any. */
  readonly observe: (kind: number, status: number, ms: number) => void;
  /** Called for a fault of this program, as opposed to a bad request. */
  readonly onFault: (error: unknown) => void;
};

const sweepMs = 1_000;

/** A client may have several names of one certificate on a connection, and opens another one for any other name (RFC 9110, 15.5.20). */
const misdirected = (host: string) =>
  answer(421, `This connection was opened for another name, and its certificate is not valid for ${JSON.stringify(host)}: open one for that name`);

export class Front implements ConnectionOwner {
  readonly limits: ProxyLimits;
  readonly head: RequestHead;
  readonly observe: FrontOptions["observe"];
  readonly slowHeads: SlowHeads;
  readonly pipelined = new Pipelined();
  draining = false;
  bytesIn = 0;
  readonly #options: FrontOptions;
  readonly #server: Server;
  readonly #clients = new Set<ClientConnection>();
  readonly #peers: Peers;
  #sweeper: NodeJS.Timeout | undefined;
  #onEmpty: (() => void) | undefined;

  constructor(options: FrontOptions) {
    this.#options = options;
    this.limits = options.limits;
    this.head = options.head;
    this.observe = options.observe;
    // Connections are adopted before anything is read from them.
    this.#server = createServer({ pauseOnConnect: true, noDelay: true, keepAlive: true, keepAliveInitialDelay: 60_000 }, (accepted) => this.#accept(accepted));
    this.slowHeads = new SlowHeads(options.limits);
    this.#peers = new Peers(options.limits);
  }

  #accept(accepted: Socket): void {
    accepted.on("error", () => {});
    const refusal = this.#peers.admit(peerOf(accepted));
    if (refusal !== undefined) {
      accepted.end(refusal, "latin1", () => accepted.destroy());
      return;
    }
    this.#begin(accepted);
  }

  #begin(accepted: Socket | Carried): void {
    const client = new ClientConnection(this, accepted, performance.now());
    this.#clients.add(client);
    this.#peers.add(client);
  }

  /** Serves a connection that a listener for TLS accepted; returns the refusal to send if there are too many. */
  carry(carried: Carried): string | undefined {
    carried.stream.on("error", () => {});
    const refusal = this.#peers.admit(carried.peer);
    if (refusal === undefined) this.#begin(carried);
    return refusal;
  }

  /** Counts a connection that is not decrypted yet, or that carries many requests; returns the refusal if there are too many. */
  admit(connection: PeerConnection): string | undefined {
    const refusal = this.#peers.admit(connection.peer);
    if (refusal === undefined) this.#peers.add(connection);
    return refusal;
  }

  release(connection: PeerConnection): void {
    this.#peers.remove(connection);
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
    this.#server.on("error", this.#options.onFault);
    this.#sweeper = setInterval(() => this.#sweep(), sweepMs);
    const bound = this.#server.address();
    return typeof bound === "object" && bound !== null ? { host: bound.address, port: bound.port } : { host, port };
  }

  get connectionCount(): number {
    return this.#clients.size;
  }

  route(head: RequestHead, client: ClientConnection): Decision {
    try {
      const { carried } = client;
      if (carried !== undefined && !carried.serves(head.value(HOST) ?? "")) return misdirected(head.value(HOST) ?? "");
      if (carried?.stranger !== undefined && !this.#options.isOpen?.(head)) return answer(403, carried.stranger, { error_code: "ACCESS_DENIED" });
      return this.#options.route(head, client);
    } catch (error) {
      this.#options.onFault(error);
      return answer(500, "The proxy failed to route this request; its log says why");
    }
  }

  forget(client: ClientConnection): void {
    this.#clients.delete(client);
    this.#peers.remove(client);
    if (this.#clients.size === 0) this.#onEmpty?.();
  }

  #sweep(): void {
    const now = performance.now();
    for (const client of this.#clients) client.sweep(now);
    this.#options.pool.sweep(now);
  }

  /** Accepts no more connections, lets requests in flight end within the bound, then ends them. */
  async close(): Promise<void> {
    this.draining = true;
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const client of this.#clients) if (client.isIdle) client.wire.destroy();
    if (this.#clients.size > 0) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#onEmpty = resolve;
      const bound = setTimeout(resolve, this.limits.drainMs);
      await promise;
      clearTimeout(bound);
    }
    for (const client of this.#clients) client.wire.destroy();
    this.#options.pool.close();
    this.slowHeads.close();
    this.pipelined.close();
    clearInterval(this.#sweeper);
    await closed;
  }
}
