// Long pipelines of requests: each tick reads one request per peer, however many connections the peer has.
import { TURN } from "./wire.ts";

/** A tick's length in a proxy: requests that a peer pipelines beyond MAX_PIPELINED_AT_ONCE are read 500 times a second. */
export const TICK_MS = 2;

export class Pipelined {
  /** Waiting reads by peer. */
  readonly #waiting = new Map<string, (() => void)[]>();
  readonly #tickMs: number;
  #ticker: NodeJS.Timeout | undefined;
  /** A tick is scheduled for the next pass. */
  #isDue = false;

  /** With 0 milliseconds, each pass of the event loop is a tick. */
  constructor(tickMs = TICK_MS) {
    this.#tickMs = tickMs;
  }

  /** Calls `read` at this peer's tick; its connection may be closed by then. A connection waits for one read at a time. */
  wait(peer: string, read: () => void): void {
    const waiting = this.#waiting.get(peer);
    if (waiting === undefined) this.#waiting.set(peer, [read]);
    else waiting.push(read);
    this.#start();
  }

  close(): void {
    clearInterval(this.#ticker);
    this.#waiting.clear();
  }

  #start(): void {
    if (this.#tickMs > 0) this.#ticker ??= setInterval(() => this.#tick(), this.#tickMs).unref();
    else if (!this.#isDue) setImmediate(() => this.#tick());
    this.#isDue = true;
  }

  #tick(): void {
    this.#isDue = false;
    if (this.#waiting.size === 0) {
      clearInterval(this.#ticker);
      this.#ticker = undefined;
      return;
    }
    for (const [peer, waiting] of [...this.#waiting]) {
      const read = waiting.shift();
      if (waiting.length === 0) this.#waiting.delete(peer);
      read?.();
    }
    this.#start();
  }
}

/** Pipelined requests that are processed without a pause; further ones wait for ticks, which leave the event loop to others. */
const MAX_PIPELINED_AT_ONCE = 32;

/** The requests of one connection that had arrived before the previous answer was sent. */
export class PipelineRow {
  readonly #pipelined: Pipelined;
  readonly #peer: string;
  readonly #wire: { pause(reason: number): void; resume(reason: number): void };
  #length = 0;

  constructor(pipelined: Pipelined, peer: string, wire: { pause(reason: number): void; resume(reason: number): void }) {
    this.#pipelined = pipelined;
    this.#peer = peer;
    this.#wire = wire;
  }

  end(): void {
    this.#length = 0;
  }

  /** Calls `read` for the next request, later: a long pipeline must not become a deep stack, nor block other connections. */
  next(read: () => void): void {
    if (++this.#length <= MAX_PIPELINED_AT_ONCE) {
      setImmediate(read);
      return;
    }
    // Otherwise more bytes would be read before this connection's tick.
    this.#wire.pause(TURN);
    this.#pipelined.wait(this.#peer, () => {
      this.#wire.resume(TURN);
      read();
    });
  }
}
