// The received bytes of a connection that were not processed yet.

const HEAD_END = Buffer.from("\r\n\r\n");
const NOTHING = Buffer.alloc(0);

export class Unread {
  readonly #doubledTo: number;
  bytes: Buffer = NOTHING;
  /** The bytes are [from, to) of `bytes`. */
  from = 0;
  to = 0;
  #searched = 0;
  #lookedAt = 0;

  /** Up to `doubledTo` bytes, twice the required capacity is allocated, so that a head in many pieces is copied less often. */
  constructor(doubledTo: number) {
    this.#doubledTo = doubledTo;
  }

  get isEmpty(): boolean {
    return this.from === this.to;
  }

  append(more: Buffer, length: number): void {
    if (this.to + length > this.bytes.length) {
      const needed = this.to - this.from + length;
      const fresh = Buffer.allocUnsafeSlow(Math.max(needed, Math.min(2 * needed, this.#doubledTo)));
      this.bytes.copy(fresh, 0, this.from, this.to);
      this.#searched -= this.from;
      this.to -= this.from;
      this.from = 0;
      this.bytes = fresh;
    }
    more.copy(this.bytes, this.to, 0, length);
    this.to += length;
  }

  beginHead(): void {
    this.#searched = this.from;
    this.#lookedAt = 0;
  }

  /** Returns true if an incomplete head should be checked for errors again: at its first bytes, then each time its length has doubled. */
  lookAgain(): boolean {
    const length = this.to - this.from;
    if (length < 2 * this.#lookedAt) return false;
    this.#lookedAt = length;
    return true;
  }

  /** Returns the end of the head, or -1. The search continues where the last one ended, so that a head in many pieces is scanned once. */
  headEnd(): number {
    const found = this.bytes.subarray(0, this.to).indexOf(HEAD_END, Math.max(this.from, this.#searched - HEAD_END.length + 1));
    this.#searched = this.to;
    return found < 0 ? -1 : found + HEAD_END.length;
  }

  clear(): void {
    this.bytes = NOTHING;
    this.from = this.to = 0;
  }
}
