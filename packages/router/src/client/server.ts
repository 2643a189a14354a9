// The listener for clients: accepts their connections, bounds their number and their waits, and closes them in order.
import { type AddressInfo, createServer, type Socket } from "node:net";
import { openFiles } from "@svc/kit/open-files.ts";
import { Peers } from "@svc/kit/proxy/peers.ts";
import { Pipelined } from "@svc/kit/proxy/pipelined.ts";
import { RequestHead } from "@svc/kit/proxy/request-head.ts";
import { SlowHeads } from "@svc/kit/proxy/slow-heads.ts";
import type { Bodies } from "../bodies.ts";
import { Refusal } from "../refusals.ts";
import { ClientConnection, type ConnectionOwner } from "./connection.ts";
import { type ClientLimits, clientLimits } from "./limits.ts";
import { type ClientRequest, clientHeaderNames } from "./request.ts";

const SWEEP_MS = 250;
/** Connections that the kernel completes before this process accepts them. */
const BACKLOG = 4_096;
/** Files that are open besides connections of clients and engines: the program's own, polls, the log. */
const SPARE_FILES = 256;

export type ClientServerOptions = {
  readonly listen: { readonly host: string; readonly port: number };
  readonly bodies: Bodies;
  /** True if clients send the router's own key. */
  readonly dropsKey: boolean;
  /** @throws Refusal before the request's body is read */
  readonly admit: (request: ClientRequest) => void;
  readonly serve: (request: ClientRequest) => void;
  readonly refused: (refusal: Refusal) => void;
  readonly onFault: (error: Error) => void;
  readonly limits?: ClientLimits;
};

export class ClientServer implements ConnectionOwner {
  readonly limits: ClientLimits;
  readonly head: RequestHead;
  readonly bodies: Bodies;
  readonly slowHeads: SlowHeads;
  readonly pipelined = new Pipelined();
  readonly dropsKey: boolean;
  readonly maxConnections: number;
  isStopping = false;
  readonly #options: ClientServerOptions;
  readonly #connections = new Set<ClientConnection>();
  readonly #peers: Peers;
  readonly #server = createServer({ pauseOnConnect: true, noDelay: true, keepAlive: true, keepAliveInitialDelay: 60_000 }, (socket) => this.#accept(socket));
  readonly #sweeping = setInterval(() => this.#sweep(), SWEEP_MS).unref();
  #onEmpty: (() => void) | undefined;

  constructor(options: ClientServerOptions) {
    this.#options = options;
    this.limits = options.limits ?? clientLimits;
    this.head = new RequestHead(clientHeaderNames, this.limits.headLines);
    this.slowHeads = new SlowHeads(this.limits);
    this.maxConnections = mostConnections(this.limits.connections);
    this.bodies = options.bodies;
    this.dropsKey = options.dropsKey;
    // All clients may come by one gateway, so one address may have as many connections as all.
    this.#peers = new Peers({ connections: this.maxConnections, connectionsPerPeer: this.maxConnections });
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async listen(): Promise<void> {
    const { host, port } = this.#options.listen;
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen({ host, port, backlog: BACKLOG }, resolve);
    });
    this.#server.on("error", this.#options.onFault);
  }

  admit(request: ClientRequest): void {
    this.#options.admit(request);
  }

  serve(request: ClientRequest): void {
    this.#options.serve(request);
  }

  refused(refusal: Refusal): void {
    this.#options.refused(refusal);
  }

  closed(connection: ClientConnection): void {
    this.#connections.delete(connection);
    this.#peers.remove(connection);
    if (this.#connections.size === 0) this.#onEmpty?.();
  }

  /** Accepts no more connections, lets answers under way end within a bound, then ends them. */
  async close(): Promise<void> {
    this.isStopping = true;
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const connection of this.#connections) if (connection.isIdle) connection.destroy();
    if (this.#connections.size > 0) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#onEmpty = resolve;
      const timer = setTimeout(resolve, this.limits.drainMs);
      await promise;
      clearTimeout(timer);
    }
    for (const connection of this.#connections) connection.destroy();
    clearInterval(this.#sweeping);
    this.pipelined.close();
    this.slowHeads.close();
    await closed;
  }

  #accept(accepted: Socket): void {
    accepted.on("error", () => {});
    if (this.#peers.admit(accepted.remoteAddress ?? "") !== undefined) {
      const refusal = new Refusal(
        "router_full",
        `the router has ${this.#connections.size} connections, the maximum under its limit of ${openFiles()} open files (ulimit -n)`,
        1,
      );
      this.refused(refusal);
      accepted.end(refusal.answer(), "latin1", () => accepted.destroy());
      return;
    }
    const connection = new ClientConnection(this, accepted);
    this.#connections.add(connection);
    this.#peers.add(connection);
  }

  #sweep(): void {
    const now = performance.now();
    for (const connection of this.#connections) connection.sweep(now);
  }
}

/** A request under way has a connection to its client and one to its engine, so half of the files that the process may open are for clients. */
function mostConnections(bound: number): number {
  return Math.min(bound, Math.max(64, Math.floor((openFiles() - SPARE_FILES) / 2)));
}
