// Bytes of a connection that wait for more of them, or for their turn; a head among them is read again only when that may help.

const HEAD_END = Buffer.from("\r\n\r\n");
const FIRST_BYTES = 1024;

export class HeldBytes {
  #buffer: Buffer;
  #start = 0;
  #length = 0;
  /** How long it was when its head was read last. */
  #readLength = 0;

  constructor(bytes: Buffer, start: number, end: number) {
    this.#buffer = Buffer.allocUnsafe(Math.max(FIRST_BYTES, end - start));
    this.append(bytes, start, end);
  }

  get length(): number {
    return this.#length;
  }

  /** What was read of it stays as it is: bytes that are added come after it. */
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

  /** Only its last `bytes` still wait. A long row of requests is so copied once, not once for each of them. */
  keepLast(bytes: number): this {
    this.#start += this.#length - bytes;
    this.#length = bytes;
    this.#readLength = 0;
    return this;
  }

  /** Its head was read and is not whole. */
  headIncomplete(): void {
    this.#readLength = this.#length;
  }

  /**
   * Adds to a head that is not whole, and says whether to read it again: when its end came, when it reached `maxBytes`, or, so that
   * a malformed one is refused before its end, when it is twice as long as the last time. So each byte is read a few times at
   * most, however many reads it came in.
   */
  appendToHead(bytes: Buffer, start: number, end: number, maxBytes: number): boolean {
    const searchFrom = Math.max(0, this.#length - (HEAD_END.length - 1));
    this.append(bytes, start, end);
    return this.#length >= maxBytes || this.#length >= 2 * this.#readLength || this.bytes.indexOf(HEAD_END, searchFrom) >= 0;
  }
}
