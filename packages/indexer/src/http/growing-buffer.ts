// Collects the bytes of a head or a body that come in pieces. The capacity doubles, so that appending stays linear.

const FIRST_BYTES = 4096;
const LF = 10;
const CR = 13;

export class GrowingBuffer {
  size = 0;
  #bytes: Buffer = Buffer.alloc(0);

  /** The size that fits before the buffer grows. */
  get capacity(): number {
    return this.#bytes.length;
  }

  append(source: Buffer, from: number, to: number): void {
    const size = this.size + to - from;
    if (size > this.#bytes.length) {
      const fresh = Buffer.allocUnsafeSlow(Math.max(size, 2 * this.#bytes.length, FIRST_BYTES));
      this.#bytes.copy(fresh, 0, 0, this.size);
      this.#bytes = fresh;
    }
    source.copy(this.#bytes, this.size, from, to);
    this.size = size;
  }

  /** The view is valid until the next call of another method. */
  view(): Buffer {
    return this.#bytes.subarray(0, this.size);
  }

  /** Transfers the bytes to the caller; later appends go to a new buffer. */
  take(): Buffer {
    const all = this.view();
    this.#bytes = Buffer.alloc(0);
    this.size = 0;
    return all;
  }

  /** Drops the bytes, and the memory as well if it is larger than `kept`. */
  clear(kept: number): void {
    this.size = 0;
    if (this.#bytes.length > kept) this.#bytes = Buffer.alloc(0);
  }

  /** Returns whether the empty line that ends a head lies at or after `from`. */
  endsHead(from: number): boolean {
    const bytes = this.view();
    for (let at = bytes.indexOf(LF, from); at >= 0 && at + 1 < bytes.length; at = bytes.indexOf(LF, at + 1))
      if (bytes[at + 1] === LF || (bytes[at + 1] === CR && bytes[at + 2] === LF)) return true;
    return false;
  }
}

/** Returns the content of a chunked body whose framing was already checked. The chunks are moved together in place. */
export function joinChunks(framed: Buffer): Buffer {
  let size = 0;
  for (let at = 0; at < framed.length; ) {
    let length = 0;
    for (let digit = hexDigit(framed[at]); digit >= 0; digit = hexDigit(framed[++at])) length = length * 16 + digit;
    if (length === 0) break;
    while (framed[at] !== LF) at++;
    framed.copyWithin(size, at + 1, at + 1 + length);
    size += length;
    at += 1 + length + 2;
  }
  return framed.subarray(0, size);
}

function hexDigit(byte: number | undefined): number {
  if (byte === undefined) return -1;
  if (byte >= 48 && byte <= 57) return byte - 48;
  const lower = byte | 0x20;
  return lower >= 97 && lower <= 102 ? lower - 87 : -1;
}
