// Client connections by peer: each peer has a bound, and the peer with the most yields to others.
import { answer, renderAnswer } from "./answer.ts";

/** The parts of a connection that count here. */
export interface PeerConnection {
  readonly peer: string;
  /** True if the connection may be closed for another, since no complete request of it is in progress. */
  readonly mayGiveWay: boolean;
  readonly wire: { destroy(): void };
}

export type PeerLimits = { readonly connections: number; readonly connectionsPerPeer: number };

const refusalOf = (message: string): string => renderAnswer(answer(503, message, {}, { "Retry-After": "1" }), false, false);
const crowded = refusalOf("The server has as many connections as it takes; try again");

export class Peers {
  readonly #limits: PeerLimits;
  readonly #tooMany: string;
  /** Each peer's connections, the oldest first. */
  readonly #byPeer = new Map<string, Set<PeerConnection>>();
  #count = 0;

  constructor(limits: PeerLimits) {
    this.#limits = limits;
    this.#tooMany = refusalOf(`This address has ${limits.connectionsPerPeer} connections already, which is the maximum; close some or reuse them`);
  }

  /** Returns undefined if the peer may open another connection, else the refusal to send. */
  admit(peer: string): string | undefined {
    const count = this.#byPeer.get(peer)?.size ?? 0;
    if (count >= this.#limits.connectionsPerPeer) return this.#tooMany;
    return this.#count < this.#limits.connections || this.#evictOne(count) ? undefined : crowded;
  }

  add(connection: PeerConnection): void {
    const ofPeer = this.#byPeer.get(connection.peer) ?? new Set();
    this.#byPeer.set(connection.peer, ofPeer);
    ofPeer.add(connection);
    this.#count++;
  }

  remove(connection: PeerConnection): void {
    const ofPeer = this.#byPeer.get(connection.peer);
    if (ofPeer?.delete(connection) !== true) return;
    this.#count--;
    if (ofPeer.size === 0) this.#byPeer.delete(connection.peer);
  }

  /** Ends a connection without a request of the peer with the most, for a peer that has fewer than half as many. */
  #evictOne(count: number): boolean {
    let largest: Set<PeerConnection> | undefined;
    for (const ofPeer of this.#byPeer.values()) if (largest === undefined || ofPeer.size > largest.size) largest = ofPeer;
    if (largest === undefined || count >= largest.size / 2) return false;
    for (const connection of largest) {
      if (!connection.mayGiveWay) continue;
      this.remove(connection);
      connection.wire.destroy();
      return true;
    }
    return false;
  }
}
