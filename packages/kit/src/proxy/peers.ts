// Client connections by the peers that hold them: none may have more than its bound, and a crowd of few makes room for others.
import { answer, renderAnswer } from "./answer.ts";

/** A connection as it counts here. */
export interface PeerConnection {
  readonly peer: string;
  /** Whether it may be closed for another: no whole request of it is under way. */
  readonly mayGiveWay: boolean;
  readonly wire: { destroy(): void };
}

export type PeerLimits = { readonly connections: number; readonly connectionsPerPeer: number };

const refusalOf = (message: string): string => renderAnswer(answer(503, message, {}, { "Retry-After": "1" }), false, false);
const crowded = refusalOf("The server has as many connections as it takes; try again");

export class Peers {
  readonly #limits: PeerLimits;
  readonly #tooMany: string;
  /** The oldest connection of each first. */
  readonly #byPeer = new Map<string, Set<PeerConnection>>();
  #count = 0;

  constructor(limits: PeerLimits) {
    this.#limits = limits;
    this.#tooMany = refusalOf(`This address has ${limits.connectionsPerPeer} connections already, which is the maximum; close some or reuse them`);
  }

  /** Undefined: one more of this peer may come. Else what it is answered. */
  admit(peer: string): string | undefined {
    const count = this.#byPeer.get(peer)?.size ?? 0;
    if (count >= this.#limits.connectionsPerPeer) return this.#tooMany;
    return this.#count < this.#limits.connections || this.#makeRoom(count) ? undefined : crowded;
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

  /** Ends a connection without a request of the peer that has most, for one that has fewer than half of that. */
  #makeRoom(count: number): boolean {
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
