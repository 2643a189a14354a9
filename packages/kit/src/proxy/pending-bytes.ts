// Pending bytes of a connection, which wait for more bytes or their tick; an incomplete head is only parsed again when that may help.

const HEAD_END = Buffer.from("\r\n\r\n");
const FIRST_BYTES = 1024;

export class PendingBytes {
  #buffer: Buffer;
  #start = 0;
  #length = 0;
  /** The length when the head was last parsed. */
  #readLength = 0;

  constructor(bytes: Buffer, start: number, end: number) {
    this.#buffer = Buffer.allocUnsafe(Math.max(FIRST_BYTES, end - start));
    this.append(bytes, start, end);
  }

  get length(): number {
    return this.#length;
  }

  /** The pending bytes; later appends do not overwrite a returned buffer. */
  get bytes(): Buffer {
    return this.#buffer.subarray(this.#start, this.#start + this.#length);
  }

  append(bytes: Buffer, start: number, end: number): void {
    const length = this.#length + end - start;
    if (this.#start + length > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(Math.max(length, 2 * this.#length));
      this.bytes.copy(larger);
      this.#buffer = larger;
      this.#start = 0;
    }
    bytes.copy(this.#buffer, this.#start + this.#length, start, end);
    this.#length = length;
  }

  /** Drops all but the last `bytes`, so that a long pipeline is copied once instead of once per request. */
  keepLast(bytes: number): this {
    this.#start += this.#length - bytes;
    this.#length = bytes;
    this.#readLength = 0;
    return this;
  }

  /** Notes that the head was parsed and is incomplete. */
  headIncomplete(): void {
    this.#readLength = this.#length;
  }

  /**
   * Appends to an incomplete head, and says whether to parse it again: when its end arrived, when it reached `maxBytes`, or when it has doubled
   * since the last parse, so that a malformed head is refused before its end. So each byte is parsed only a few times, however many reads
   * deliver the head.
   */
  appendToHead(bytes: Buffer, start: number, end: number, maxBytes: number): boolean {
    const searchFrom = Math.max(0, this.#length - (HEAD_END.length - 1));
    this.append(bytes, start, end);
    return this.#length >= maxBytes || this.#length >= 2 * this.#readLength || this.bytes.indexOf(HEAD_END, searchFrom) >= 0;
  }
}
