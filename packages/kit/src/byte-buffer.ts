// A growing buffer of bytes that wait for more bytes or for their tick; an incomplete head is only parsed again when that may help.

const HEAD_END = Buffer.from("\r\n\r\n");
const FIRST_BYTES = 1024;
const NOTHING = Buffer.alloc(0);

/** Copies into memory of its own, since a slice would keep the whole buffer alive. */
export function ownCopy(bytes: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(bytes.length);
  bytes.copy(copy);
  return copy;
}

export class ByteBuffer {
  #buffer: Buffer = NOTHING;
  #start = 0;
  #length = 0;
  /** The length when the head was last parsed. */
  #parsedLength = 0;

  constructor(bytes: Buffer = NOTHING, start = 0, end = 0) {
    if (end > start) this.append(bytes, start, end);
  }

  get length(): number {
    return this.#length;
  }

  /** The bytes; appends do not overwrite a returned buffer, but `clear` allows it. */
  get bytes(): Buffer {
    return this.#buffer.subarray(this.#start, this.#start + this.#length);
  }

  append(bytes: Buffer, start: number, end: number): void {
    const length = this.#length + end - start;
    if (this.#start + length > this.#buffer.length) this.#move(Buffer.allocUnsafe(Math.max(length, 2 * this.#length, FIRST_BYTES)));
    bytes.copy(this.#buffer, this.#start + this.#length, start, end);
    this.#length = length;
  }

  /** Allocates own memory for `bytes` in total, so that later appends up to that size move nothing. */
  reserve(bytes: number): void {
    this.#move(Buffer.allocUnsafeSlow(bytes));
  }

  #move(larger: Buffer): void {
    this.#buffer.copy(larger, 0, this.#start, this.#start + this.#length);
    this.#buffer = larger;
    this.#start = 0;
  }

  /** Transfers the bytes to the caller; later appends go to new memory. */
  take(): Buffer {
    const { bytes } = this;
    this.clear();
    return bytes;
  }

  /** Drops the bytes, and their memory if it is larger than `keptBytes`. */
  clear(keptBytes = 0): void {
    if (this.#buffer.length > keptBytes) this.#buffer = NOTHING;
    this.#start = this.#length = this.#parsedLength = 0;
  }

  /** Drops all but the last `bytes`, so that a long pipeline is copied once instead of once per request. */
  keepLast(bytes: number): this {
    this.#start += this.#length - bytes;
    this.#length = bytes;
    this.#parsedLength = 0;
    return this;
  }

  /** Notes that the head was parsed and is incomplete. */
  headIncomplete(): void {
    this.#parsedLength = this.#length;
  }

  /**
   * Appends to an incomplete head, and says whether to parse it again: when its end arrived, when it reached `maxBytes`, or when it has doubled
   * since the last parse, so that a malformed head is refused before its end. So each byte is parsed only a few times, however many reads
   * deliver the head.
   */
  appendToHead(bytes: Buffer, start: number, end: number, maxBytes: number): boolean {
    const searchFrom = Math.max(0, this.#length - (HEAD_END.length - 1));
    this.append(bytes, start, end);
    return this.#length >= maxBytes || this.#length >= 2 * this.#parsedLength || this.bytes.indexOf(HEAD_END, searchFrom) >= 0;
  }
}
