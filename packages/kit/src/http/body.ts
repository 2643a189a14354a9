// The body of one request: used where it was read if one read brought all of it, else collected in memory of its own.
import { ByteBuffer } from "../byte-buffer.ts";
import { BodyScanner } from "../proxy/body-scanner.ts";
import { CHUNKED } from "../proxy/request-head.ts";

export class RequestBody {
  readonly #maxBytes: number;
  readonly #scanner = new BodyScanner();
  readonly #kept = new ByteBuffer();
  #inPlace: Buffer | undefined;
  #isChunked = false;
  #declaredBytes = 0;
  isTooLarge = false;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
    this.#scanner.onData = (bytes, start, end) => {
      if (this.#isChunked) this.#keep(bytes as Buffer, start, end);
    };
  }

  /** `bytes` is the length that the head declares, or CHUNKED. */
  start(bytes: number): void {
    this.#isChunked = bytes === CHUNKED;
    this.#declaredBytes = bytes;
    this.isTooLarge = bytes > this.#maxBytes;
    this.#scanner.start(bytes);
  }

  get isWhole(): boolean {
    return this.#scanner.done;
  }

  get keptBytes(): number {
    return this.#kept.length;
  }

  /** The memory that the body may take. */
  get mostBytes(): number {
    return this.#isChunked ? this.#maxBytes : this.#declaredBytes;
  }

  /** Allocates the memory of a body of known length at once. */
  reserve(): void {
    if (!this.#isChunked) this.#kept.reserve(this.#declaredBytes);
  }

  /** Returns where it stopped: at the end of the body or of the bytes; -1 if the chunks are invalid. */
  read(bytes: Buffer, at: number, end: number): number {
    const bodyEnd = this.#scanner.scan(bytes, at, end);
    if (bodyEnd < 0 || this.#isChunked) return bodyEnd;
    if (this.#scanner.done && this.#kept.length === 0) this.#inPlace = bytes.subarray(at, bodyEnd);
    else this.#keep(bytes, at, bodyEnd);
    return bodyEnd;
  }

  /** Transfers the whole body to the caller; `stays` is false if the body is a view of the connection's read buffer. */
  take(): { readonly body: Buffer; readonly stays: boolean } {
    const body = this.#inPlace ?? this.#kept.take();
    const stays = this.#inPlace === undefined;
    this.#inPlace = undefined;
    return { body, stays };
  }

  clear(): void {
    this.#kept.clear();
  }

  #keep(bytes: Buffer, start: number, end: number): void {
    this.isTooLarge ||= this.#kept.length + end - start > this.#maxBytes;
    if (!this.isTooLarge) this.#kept.append(bytes, start, end);
  }
}
