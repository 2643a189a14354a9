// Request heads that arrive in many pieces: bounded in number, and read round robin over the peers that send them.
import { SLOW } from "./wire.ts";

/** A connection whose head is incomplete. */
export interface SlowHead {
  readonly peer: string;
  /** Continues reading. */
  goOn(): void;
  /** Answers that too many heads are unfinished, and ends the connection. */
  giveUp(): void;
}

export type SlowHeadLimits = {
  readonly unfinishedHeads: number;
  readonly unfinishedHeadsPerPeer: number;
};

/** Reads before a head must wait for ticks. Ordinary heads arrive in one or two reads, long ones over slow links in a few. */
const FREE_READS = 4;
const TICK_MS = 10;
const READS_PER_TICK = 16;

export class SlowHeads {
  readonly #limits: SlowHeadLimits;
  /** Each peer's heads, the oldest first. */
  readonly #byPeer = new Map<string, Set<SlowHead>>();
  /** Heads that wait for a tick, by peer; peers are in the order in which they are read. */
  readonly #waiting = new Map<string, Set<SlowHead>>();
  #count = 0;
  #ticker: NodeJS.Timeout | undefined;

  constructor(limits: SlowHeadLimits) {
    this.#limits = limits;
  }

  /** Registers a new head. If there are too many, the oldest one of the peer with the most is evicted. */
  enter(head: SlowHead): void {
    const ofPeer = this.#byPeer.get(head.peer) ?? new Set();
    this.#byPeer.set(head.peer, ofPeer);
    ofPeer.add(head);
    this.#count++;
    if (ofPeer.size > this.#limits.unfinishedHeadsPerPeer) this.#evict(ofPeer);
    else if (this.#count > this.#limits.unfinishedHeads) this.#evict(this.#largest());
  }

  /** Removes a head that is complete or refused, or whose connection is gone. */
  leave(head: SlowHead): void {
    const ofPeer = this.#byPeer.get(head.peer);
    if (ofPeer?.delete(head) !== true) return;
    this.#count--;
    if (ofPeer.size === 0) this.#byPeer.delete(head.peer);
    const waiting = this.#waiting.get(head.peer);
    if (waiting?.delete(head) === true && waiting.size === 0) this.#waiting.delete(head.peer);
  }

  /** Calls `goOn` when this head may be read. */
  wait(head: SlowHead): void {
    const waiting = this.#waiting.get(head.peer) ?? new Set();
    this.#waiting.set(head.peer, waiting);
    waiting.add(head);
    this.#ticker ??= setInterval(() => this.#tick(), TICK_MS).unref();
  }

  close(): void {
    clearInterval(this.#ticker);
  }

  #tick(): void {
    for (let reads = 0; reads < READS_PER_TICK; reads++) {
      const next = this.#waiting.entries().next();
      if (next.done === true) {
        clearInterval(this.#ticker);
        this.#ticker = undefined;
        return;
      }
      const [peer, waiting] = next.value;
      const [head] = waiting;
      // The peer goes to the end of the queue.
      this.#waiting.delete(peer);
      if (head === undefined) continue;
      waiting.delete(head);
      if (waiting.size > 0) this.#waiting.set(peer, waiting);
      head.goOn();
    }
  }

  #largest(): Set<SlowHead> | undefined {
    let largest: Set<SlowHead> | undefined;
    for (const ofPeer of this.#byPeer.values()) if (largest === undefined || ofPeer.size > largest.size) largest = ofPeer;
    return largest;
  }

  #evict(ofPeer: Set<SlowHead> | undefined): void {
    const [oldest] = ofPeer ?? [];
    oldest?.giveUp();
  }
}

/** The part of a wire that is used here: reading stops while it is paused for any reason. */
type Pausable = { pause(reason: number): void; resume(reason: number): void };

/** The head of one connection while it is incomplete: a few reads are free, later ones wait for ticks. */
export class UnfinishedHead implements SlowHead {
  readonly peer: string;
  readonly giveUp: () => void;
  readonly #heads: SlowHeads;
  readonly #wire: Pausable;
  /** Counts the reads that left it incomplete; 0 while there is none. */
  #reads = 0;

  constructor(heads: SlowHeads, peer: string, wire: Pausable, giveUp: () => void) {
    this.#heads = heads;
    this.peer = peer;
    this.#wire = wire;
    this.giveUp = giveUp;
  }

  get isBegun(): boolean {
    return this.#reads > 0;
  }

  /** Counts a read. If too many heads are unfinished, this may give up the very connection, which then ends the head. */
  read(): void {
    if (++this.#reads === 1) this.#heads.enter(this);
    if (this.#reads < FREE_READS) return;
    this.#wire.pause(SLOW);
    this.#heads.wait(this);
  }

  /** The head is complete or refused, or its connection is gone. */
  end(): void {
    if (this.#reads === 0) return;
    this.#reads = 0;
    this.#heads.leave(this);
    this.#wire.resume(SLOW);
  }

  goOn(): void {
    this.#wire.resume(SLOW);
  }
}
