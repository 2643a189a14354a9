// The body of an RPC message: its type's hash, the width of its length fields, and the encoded values.
import { createHash } from "node:crypto";

//  type_hash u32 | metainfo u8 | size (2, 4, 8 bytes, if bits 0-1 are 1, 2, 3) | literal … 00 (if bit 2) | payload | later fields
//                  bits 3-4: width of every length field (1, 2, 4, 8 bytes)
//
// A release that adds fields to a type without a new hash (0.3.14 does) writes them after the payload,
// and puts the body's total size in front. A reader that does not know the fields skips them.

const SIZE_BITS = 0b11;
const HAS_LITERAL = 0b100;
const WIDTH_SHIFT = 3;

/** Returns the type's id in messages: the first four bytes of its literal's MD5, with the lowest bit set. */
export function typeHash(literal: readonly number[]): number {
  return (createHash("md5").update(Uint8Array.from(literal)).digest().readUInt32BE(0) | 1) >>> 0;
}

const widthCode = (largest: number) => (largest < 0x100 ? 0 : largest < 0x1_0000 ? 1 : 2);

/** Writes into a growing buffer; the caller takes a copy of its contents. */
export class BodyWriter {
  #buffer = Buffer.allocUnsafe(256);
  #at = 0;
  #width = 0;

  begin(hash: number, largest: number, literal?: readonly number[]): void {
    this.#at = 0;
    this.#width = widthCode(largest);
    this.u32(hash);
    this.u8((literal === undefined ? 0 : HAS_LITERAL) | (this.#width << WIDTH_SHIFT));
    if (literal === undefined) return;
    for (const byte of literal) this.u8(byte);
    this.u8(0);
  }

  /** Returns a copy of what was written since `begin`. */
  take(): Buffer {
    return Buffer.from(this.#buffer.subarray(0, this.#at));
  }

  #grow(count: number): number {
    const at = this.#at;
    this.#at += count;
    if (this.#at > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(Math.max(this.#at, this.#buffer.length * 2));
      this.#buffer.copy(larger, 0, 0, at);
      this.#buffer = larger;
    }
    return at;
  }

  u8(value: number): void {
    const at = this.#grow(1);
    this.#buffer[at] = value;
  }

  u16(value: number): void {
    const at = this.#grow(2);
    this.#buffer.writeUInt16LE(value, at);
  }

  u32(value: number): void {
    const at = this.#grow(4);
    this.#buffer.writeUInt32LE(value, at);
  }

  i32(value: number): void {
    const at = this.#grow(4);
    this.#buffer.writeInt32LE(value, at);
  }

  u64(value: bigint): void {
    const at = this.#grow(8);
    this.#buffer.writeBigUInt64LE(value, at);
  }

  i64(value: bigint): void {
    const at = this.#grow(8);
    this.#buffer.writeBigInt64LE(value, at);
  }

  uuid(text: string): void {
    const at = this.#grow(16);
    const digits = text.replaceAll("-", "");
    for (const half of [0, 16]) {
      this.#buffer.writeUInt32LE(Number.parseInt(digits.slice(half + 8, half + 16), 16), at + half / 2);
      this.#buffer.writeUInt32LE(Number.parseInt(digits.slice(half, half + 8), 16), at + half / 2 + 4);
    }
  }

  length(value: number): void {
    if (this.#width === 0) this.u8(value);
    else if (this.#width === 1) this.u16(value);
    else this.u32(value);
  }

  latin1(text: string): void {
    const at = this.#grow(text.length);
    this.#buffer.write(text, at, "latin1");
  }
}

/** Reads a body from its first byte to its last; every length is checked against the remaining bytes. */
export class BodyReader {
  readonly #buffer: Buffer;
  #at = 0;
  #width = 0;
  #hasLaterFields = false;

  constructor(buffer: Buffer) {
    this.#buffer = buffer;
  }

  /** Returns the message's type hash and its literal, if it has one; the payload is read next. */
  begin(): { hash: number; literal: Buffer | undefined } {
    const hash = this.u32();
    const metainfo = this.u8();
    this.#width = (metainfo >> WIDTH_SHIFT) & 3;
    if ((metainfo & SIZE_BITS) !== 0) this.#readSize(metainfo & SIZE_BITS);
    if ((metainfo & HAS_LITERAL) === 0) return { hash, literal: undefined };
    const end = this.#buffer.indexOf(0, this.#at);
    if (end < 0) throw new RangeError("expected a type literal that ends with a zero byte, got none");
    const literal = this.#buffer.subarray(this.#at, end);
    this.#at = end + 1;
    return { hash, literal };
  }

  get left(): number {
    return this.#buffer.length - this.#at;
  }

  /** @throws RangeError for remaining bytes that are not a later release's fields. */
  end(): void {
    if (this.left > 0 && !this.#hasLaterFields) throw new RangeError(`expected the body to end, got ${this.left} more bytes`);
  }

  #readSize(code: number): void {
    const size = code === 1 ? this.#buffer.readUInt16LE(this.#take(2)) : code === 2 ? this.u32() : Number(this.u64());
    if (size !== this.#buffer.length) throw new RangeError(`expected a body of ${size} bytes, as its head says, got ${this.#buffer.length}`);
    this.#hasLaterFields = true;
  }

  #take(count: number): number {
    const at = this.#at;
    if (count > this.#buffer.length - at) throw new RangeError(`expected ${count} more bytes of the body, got ${this.#buffer.length - at}`);
    this.#at = at + count;
    return at;
  }

  u8(): number {
    return this.#buffer[this.#take(1)] as number;
  }

  u32(): number {
    return this.#buffer.readUInt32LE(this.#take(4));
  }

  i32(): number {
    return this.#buffer.readInt32LE(this.#take(4));
  }

  u64(): bigint {
    return this.#buffer.readBigUInt64LE(this.#take(8));
  }

  i64(): bigint {
    return this.#buffer.readBigInt64LE(this.#take(8));
  }

  uuid(): string {
    const at = this.#take(16);
    const hex = (offset: number) =>
      this.#buffer
        .readUInt32LE(at + offset)
        .toString(16)
        .padStart(8, "0");
    const first = hex(4) + hex(0);
    const second = hex(12) + hex(8);
    return `${first.slice(0, 8)}-${first.slice(8, 12)}-${first.slice(12)}-${second.slice(0, 4)}-${second.slice(4)}`;
  }

  /** Reads a count of items of at least `itemBytes` each; a count that cannot fit into the rest of the body is refused before any allocation. */
  length(itemBytes: number): number {
    const value =
      this.#width === 0 ? this.u8() : this.#width === 1 ? this.#buffer.readUInt16LE(this.#take(2)) : this.#width === 2 ? this.u32() : Number(this.u64());
    if (value * itemBytes > this.left) throw new RangeError(`expected a length of at most ${this.left}, got ${value}`);
    return value;
  }

  latin1(count: number): string {
    const at = this.#take(count);
    return this.#buffer.toString("latin1", at, at + count);
  }
}

/** Reads and writes the values of one type. */
export type Codec<T> = {
  /** Returns the largest length field that `value` needs, which determines the width of all length fields of its message. */
  widest(value: T): number;
  write(to: BodyWriter, value: T): void;
  /** @throws RangeError where the body is shorter than its lengths require. */
  read(from: BodyReader): T;
};

const writer = new BodyWriter();

/** Encodes one value as a whole body; with `literal` it includes the type's literal, as Mooncake's clients send it. */
export function encodeBody<T>(schema: Codec<T>, hash: number, value: T, literal?: readonly number[]): Buffer {
  writer.begin(hash, schema.widest(value), literal);
  schema.write(writer, value);
  return writer.take();
}

/**
 * Decodes a whole body.
 * @throws RangeError where its hash is not `hash`, it is truncated, or bytes remain.
 */
export function decodeBody<T>(schema: Codec<T>, hash: number, body: Buffer): T {
  const from = new BodyReader(body);
  const begun = from.begin();
  if (begun.hash !== hash) throw new RangeError(`expected type hash ${hash}, got ${begun.hash}`);
  const value = schema.read(from);
  from.end();
  return value;
}
