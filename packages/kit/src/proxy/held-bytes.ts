// Bytes of a connection that wait for more of them, or for their turn; a head among them is read again only when that may help.

const HEAD_END = Buffer.from("\r\n\r\n");
const FIRST_BYTES = 1024;

export class HeldBytes {
  #buffer: Buffer;
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

  /** Valid until the next append. */
  get bytes(): Buffer {
    return this.#buffer.subarray(0, this.#length);
  }

  append(bytes: Buffer, start: number, end: number): void {
    const length = this.#length + end - start;
    if (length > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(Math.max(length, 2 * this.#buffer.length));
      this.#buffer.copy(larger, 0, 0, this.#length);
      this.#buffer = larger;
    }
    bytes.copy(this.#buffer, this.#length, start, end);
    this.#length = length;
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
