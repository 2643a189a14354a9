// An HTTP server for many small requests: bodies are whole before they are handled, and slow or greedy clients are bounded.
import { type AddressInfo, createServer, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import type { ListenAddress } from "../listen.ts";
import { Pipelined } from "../proxy/pipelined.ts";
import { RequestHead } from "../proxy/request-head.ts";
import { SlowHeads } from "../proxy/slow-heads.ts";
import { HttpConnection } from "./connection.ts";
import type { Carried, HttpOptions } from "./exchange.ts";
import { DRAIN_MS, MAX_HEAD_LINES, MAX_UNFINISHED_HEADS, MAX_UNFINISHED_HEADS_PER_PEER, SWEEP_MS } from "./limits.ts";
import { MemoryBudget } from "./memory.ts";

/** Connections that the kernel completes before this process accepts them. */
const BACKLOG = 4096;

export class HttpServer {
  readonly options: HttpOptions;
  readonly head: RequestHead;
  readonly memory: MemoryBudget;
  readonly pipelined = new Pipelined(0);
  readonly slowHeads = new SlowHeads({ unfinishedHeads: MAX_UNFINISHED_HEADS, unfinishedHeadsPerPeer: MAX_UNFINISHED_HEADS_PER_PEER });
  draining = false;
  readonly #byPeer = new Map<string, Set<HttpConnection>>();
  #connections = 0;
  readonly #server = createServer({ pauseOnConnect: true }, (socket) => this.adopt(socket));
  readonly #sweeping = setInterval(() => this.#sweep(), SWEEP_MS).unref();

  /** Serves no connections until `listen` or `adopt` is called. */
  constructor(options: HttpOptions) {
    this.options = options;
    this.head = new RequestHead(["authorization", ...(options.headers ?? [])], MAX_HEAD_LINES);
    this.memory = new MemoryBudget(options.maxBufferedBytes);
  }

  get connections(): number {
    return this.#connections;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Resolves when the server listens; a failure is that of the system. */
  async listen({ host, port }: ListenAddress): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen({ host, port, backlog: BACKLOG }, resolve);
    });
  }

  /** Lets the process end while the server listens. */
  unref(): void {
    this.#server.unref();
  }

  /** Serves a connection that was accepted and not read; `begun` has the bytes that it sent already. */
  adopt(socket: Socket, begun?: Buffer): void {
    this.#begin(socket, undefined, begun);
  }

  /** Serves a connection that another listener accepted and decrypts. */
  carry(socket: Socket, carried: Carried): void {
    this.#begin(socket, carried);
  }

  #begin(socket: Socket, carried: Carried | undefined, begun?: Buffer): void {
    socket.on("error", () => {});
    const connection = new HttpConnection(this, socket, carried);
    const ofPeer = this.#byPeer.get(connection.peer) ?? new Set();
    this.#byPeer.set(connection.peer, ofPeer);
    ofPeer.add(connection);
    if (++this.#connections > this.options.maxConnections && !this.#giveWay(connection)) {
      connection.refuse("all connections of this server have requests");
      connection.destroy();
      return;
    }
    if (begun !== undefined) connection.onBytes(begun, begun.length);
  }

  closed(connection: HttpConnection): void {
    const ofPeer = this.#byPeer.get(connection.peer);
    if (ofPeer?.delete(connection) !== true) return;
    this.#connections--;
    if (ofPeer.size === 0) this.#byPeer.delete(connection.peer);
  }

  /** Ends idle connections at once, and others after the answer that is under way, within a bound. */
  async close(): Promise<void> {
    this.draining = true;
    this.#server.close();
    for (const connection of this.#all()) if (connection.isBetween) connection.destroy();
    for (const until = performance.now() + DRAIN_MS; this.#connections > 0 && performance.now() < until; ) await delay(20);
    for (const connection of this.#all()) connection.destroy();
    clearInterval(this.#sweeping);
    this.pipelined.close();
    this.slowHeads.close();
  }

  #all(): readonly HttpConnection[] {
    return [...this.#byPeer.values()].flatMap((ofPeer) => [...ofPeer]);
  }

  /** Closes a connection of the peer with the most: the one that has waited longest for its client, first of those between two requests. */
  #giveWay(fresh: HttpConnection): boolean {
    let largest: ReadonlySet<HttpConnection> = new Set();
    for (const ofPeer of this.#byPeer.values()) if (ofPeer.size > largest.size) largest = ofPeer;
    const now = performance.now();
    let chosen: HttpConnection | undefined;
    for (const connection of largest) {
      if (connection === fresh || connection.isAnswering) continue;
      const isBetter =
        chosen === undefined || (connection.isBetween === chosen.isBetween ? connection.waitedMs(now) > chosen.waitedMs(now) : connection.isBetween);
      if (isBetter) chosen = connection;
    }
    if (chosen === undefined) return false;
    chosen.evict("more clients came than the server may have, and this connection has waited longest");
    chosen.destroy();
    this.closed(chosen);
    return true;
  }

  #sweep(): void {
    const now = performance.now();
    for (const ofPeer of this.#byPeer.values()) for (const connection of ofPeer) connection.sweep(now);
    this.memory.sweep();
  }
}
