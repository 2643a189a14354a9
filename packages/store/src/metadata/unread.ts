// Bytes of a connection that came and were not used up yet.

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

  /** Up to `doubledTo` the room is made twice as large as needed: a head in many parts is not copied as often. */
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

  /** Whether to look at a head that is not whole, for what makes it none: at its first bytes, then each time it is twice as long. */
  lookAgain(): boolean {
    const length = this.to - this.from;
    if (length < 2 * this.#lookedAt) return false;
    this.#lookedAt = length;
    return true;
  }

  /** Where the head ends, or -1. Looked for from where the last look ended: a head that comes byte by byte is read once. */
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
