// Finds a body's end as its bytes pass: by length, by chunks (checked strictly), or at the connection's end.
import { byteClass, TOKEN, VALUE } from "./header-names.ts";

/** Bound on the hex digits of a chunk's size: 2^52, which a number represents exactly. */
const maxSizeDigits = 13;
const maxExtensionBytes = 1024;
const maxTrailerBytes = 16 * 1024;

type State =
  | "none"
  | "length"
  | "close"
  | "size"
  | "extension"
  | "size-lf"
  | "data"
  | "data-cr"
  | "data-lf"
  | "trailer"
  | "trailer-name"
  | "trailer-value"
  | "trailer-lf"
  | "last-lf";

const CR = 13;
const LF = 10;

export class BodyScanner {
  /** True once the body's last byte has passed. */
  done = true;
  /** Receives the body's content as it passes, without the framing. */
  onData: ((bytes: Uint8Array, start: number, end: number) => void) | undefined;
  #state: State = "none";
  #remaining = 0;
  #digits = 0;
  #extra = 0;

  /** `bytes` is the body's length, -1 for chunked, -2 for a body that ends with the connection. */
  start(bytes: number): void {
    this.done = bytes === 0;
    this.#remaining = Math.max(bytes, 0);
    this.#digits = 0;
    this.#extra = 0;
    this.#state = bytes === 0 ? "none" : bytes > 0 ? "length" : bytes === -1 ? "size" : "close";
  }

  /** The number of bytes known to be missing: the rest of a body of known length, or of a chunked body's current chunk. */
  get missing(): number {
    return this.#remaining;
  }

  get endsWithConnection(): boolean {
    return this.#state === "close";
  }

  /** Returns the offset in [start, end) where the body's bytes end, or -1 if the chunk framing is invalid. */
  scan(bytes: Uint8Array, start: number, end: number): number {
    switch (this.#state) {
      case "none":
        return start;
      case "close":
        return end;
      case "length": {
        const taken = Math.min(this.#remaining, end - start);
        this.#remaining -= taken;
        this.onData?.(bytes, start, start + taken);
        if (this.#remaining === 0) this.done = true;
        if (this.done) this.#state = "none";
        return start + taken;
      }
      default:
        return this.#scanChunks(bytes, start, end);
    }
  }

  #scanChunks(bytes: Uint8Array, at: number, end: number): number {
    while (at < end) {
      if (this.#state === "data") {
        const taken = Math.min(this.#remaining, end - at);
        this.#remaining -= taken;
        this.onData?.(bytes, at, at + taken);
        at += taken;
        if (this.#remaining === 0) this.#state = "data-cr";
        continue;
      }
      const next = this.#step(this.#state, bytes[at] as number);
      if (next === undefined) return -1;
      this.#state = next;
      at++;
      if (next === "none") {
        this.done = true;
        return at;
      }
    }
    return at;
  }

  #step(state: State, byte: number): State | undefined {
    switch (state) {
      case "size": {
        const digit = hexDigit(byte);
        if (digit >= 0) {
          this.#remaining = this.#remaining * 16 + digit;
          return ++this.#digits > maxSizeDigits ? undefined : "size";
        }
        if (this.#digits === 0) return undefined;
        return byte === CR ? "size-lf" : byte === 0x3b ? "extension" : undefined;
      }
      case "extension":
        if (byte === CR) return "size-lf";
        return ((byteClass[byte] as number) & VALUE) !== 0 && ++this.#extra <= maxExtensionBytes ? "extension" : undefined;
      case "size-lf":
        if (byte !== LF) return undefined;
        this.#digits = 0;
        this.#extra = 0;
        return this.#remaining === 0 ? "trailer" : "data";
      case "data-cr":
        return byte === CR ? "data-lf" : undefined;
      case "data-lf":
        return byte === LF ? "size" : undefined;
      case "trailer":
        if (byte === CR) return "last-lf";
        return this.#trailerName(byte);
      case "trailer-name":
        return byte === 0x3a ? "trailer-value" : this.#trailerName(byte);
      case "trailer-value":
        if (byte === CR) return "trailer-lf";
        return ((byteClass[byte] as number) & VALUE) !== 0 && ++this.#extra <= maxTrailerBytes ? "trailer-value" : undefined;
      case "trailer-lf":
        return byte === LF ? "trailer" : undefined;
      case "last-lf":
        return byte === LF ? "none" : undefined;
      default:
        return undefined;
    }
  }

  #trailerName(byte: number): State | undefined {
    return ((byteClass[byte] as number) & TOKEN) !== 0 && ++this.#extra <= maxTrailerBytes ? "trailer-name" : undefined;
  }
}

function hexDigit(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const lower = byte | 0x20;
  return lower >= 97 && lower <= 102 ? lower - 87 : -1;
}
