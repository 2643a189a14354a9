// Long rows of requests sent ahead of their answers: read in turns, one of each peer, however many connections it has.

/** A turn's length: what a peer sends ahead beyond its free row is read 500 times a second. */
export const TURN_MS = 2;

export class Pipelined {
  /** Reads that wait, by peer. */
  readonly #waiting = new Map<string, (() => void)[]>();
  #turns: NodeJS.Timeout | undefined;

  /** `read` is called when it is this peer's turn; its connection may be closed by then. A connection waits for one read at a time. */
  wait(peer: string, read: () => void): void {
    const waiting = this.#waiting.get(peer);
    if (waiting === undefined) this.#waiting.set(peer, [read]);
    else waiting.push(read);
    this.#turns ??= setInterval(() => this.#turn(), TURN_MS).unref();
  }

  close(): void {
    clearInterval(this.#turns);
    this.#waiting.clear();
  }

  #turn(): void {
    if (this.#waiting.size === 0) {
      clearInterval(this.#turns);
      this.#turns = undefined;
      return;
    }
    for (const [peer, waiting] of [...this.#waiting]) {
      const read = waiting.shift();
      if (waiting.length === 0) this.#waiting.delete(peer);
      read?.();
    }
  }
}
