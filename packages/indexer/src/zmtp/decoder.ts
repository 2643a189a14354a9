// Decodes bytes to messages and commands: in place, with a copy only of a message that the end of a read cut.
import { ByteBuffer } from "@svc/kit/byte-buffer.ts";
import { COMMAND, LONG, LONG_HEAD_BYTES, MORE, SHORT_HEAD_BYTES } from "./wire-format.ts";

/** The buffer size that is kept for the next message that is cut. */
const KEPT_BYTES = 64 * 1024;
/** Events have three frames, replay answers up to four. */
const MAX_FRAMES = 8;
const MAX_COMMAND_BYTES = 4096;

/** The results of `front`: nothing complete, a message, or a command. */
export const NOTHING = 0;
export const MESSAGE = 1;
export const COMMAND_FOUND = 2;

/**
 * `front` returns what comes next, and `shift` moves past it. The result of `front` is valid until `shift`, `stow` or `feed`: its frames
 * are views of what was fed, or of the copy.
 */
export class Decoder {
  /** Why nothing more can be read: the peer has violated the protocol or the limits. */
  problem = "";
  readonly frames: Buffer[] = [];
  readonly #maxBytes: number;
  #bytes: Buffer = Buffer.alloc(0);
  #at = 0;
  #end = 0;
  /** The size of the message or command in front, in bytes of `#bytes` or of `#cut`. */
  #size = 0;
  /** The beginning of a message whose rest has not come; it is in front once the rest is there. */
  readonly #cut = new ByteBuffer();
  /** The whole size of that message, as far as its heads show. */
  #wanted = 0;
  #found: typeof NOTHING | typeof MESSAGE | typeof COMMAND_FOUND = NOTHING;

  /** `maxBytes` limits a message's frames together. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** The size of the message that is cut, as far as it is known; 0 if none is. */
  get wantedBytes(): number {
    return this.#cut.length > 0 ? this.#wanted : 0;
  }

  /** True if all bytes that were fed are consumed. */
  get isEmpty(): boolean {
    return this.#found === NOTHING && this.#at === this.#end;
  }

  /** Call this only if all earlier bytes are consumed. The caller must keep the bytes until then, or until `stow`. */
  feed(bytes: Buffer, length: number): void {
    this.#bytes = bytes;
    this.#at = 0;
    this.#end = length;
  }

  /** Copies the bytes that were fed and not consumed, since their buffer is read into again. */
  stow(): void {
    if (this.#at === this.#end) return;
    this.#bytes = Buffer.from(this.#bytes.subarray(this.#at, this.#end));
    this.#end = this.#bytes.length;
    this.#at = 0;
    if (this.#found !== NOTHING && this.#cut.length === 0) this.#found = NOTHING;
  }

  front(): typeof NOTHING | typeof MESSAGE | typeof COMMAND_FOUND {
    if (this.#found !== NOTHING || this.problem !== "") return this.#found;
    if (this.#cut.length > 0) return this.#complete();
    if (this.#at === this.#end) return NOTHING;
    const size = this.#measure(this.#bytes, this.#at, this.#end);
    if (this.problem !== "") return NOTHING;
    if (size <= this.#end - this.#at) return this.#read(this.#bytes, this.#at, size);
    this.#cut.append(this.#bytes, this.#at, this.#end);
    this.#wanted = size;
    this.#at = this.#end;
    return NOTHING;
  }

  shift(): void {
    if (this.#cut.length > 0) this.#cut.clear(KEPT_BYTES);
    else this.#at += this.#size;
    this.#found = NOTHING;
  }

  #complete(): typeof NOTHING | typeof MESSAGE | typeof COMMAND_FOUND {
    for (;;) {
      const end = Math.min(this.#end, this.#at + this.#wanted - this.#cut.length);
      this.#cut.append(this.#bytes, this.#at, end);
      this.#at = end;
      if (this.#cut.length < this.#wanted) return NOTHING;
      const bytes = this.#cut.bytes;
      const size = this.#measure(bytes, 0, bytes.length);
      if (this.problem !== "") return NOTHING;
      if (size === bytes.length) return this.#read(bytes, 0, size);
      this.#wanted = size;
    }
  }

  /** Returns the size of the message or command at `from`. If it is incomplete, the result is a lower bound that exceeds what is there. */
  #measure(bytes: Buffer, from: number, end: number): number {
    let at = from;
    for (let frames = 1; ; frames++) {
      if (at + SHORT_HEAD_BYTES > end) return at + SHORT_HEAD_BYTES - from;
      const flags = bytes[at] as number;
      const isCommand = (flags & COMMAND) !== 0;
      if (flags > (MORE | LONG | COMMAND) || (isCommand && ((flags & MORE) !== 0 || frames > 1))) return this.#refuse("sent a frame that ZMTP does not have");
      if (frames > MAX_FRAMES) return this.#refuse(`sent a message of more than ${MAX_FRAMES} frames`);
      let size = bytes[at + 1] as number;
      at += SHORT_HEAD_BYTES;
      if ((flags & LONG) !== 0) {
        at += LONG_HEAD_BYTES - SHORT_HEAD_BYTES;
        if (at > end) return at - from;
        size = bytes.readUInt32BE(at - 8) * 2 ** 32 + bytes.readUInt32BE(at - 4);
      }
      at += size;
      const most = isCommand ? MAX_COMMAND_BYTES : this.#maxBytes;
      if (at - from > most) return this.#refuse(`sent ${isCommand ? "a command" : "a message"} of ${at - from} bytes or more; the maximum is ${most}`);
      if (at > end || (flags & MORE) === 0) return at - from;
    }
  }

  #read(bytes: Buffer, from: number, size: number): typeof MESSAGE | typeof COMMAND_FOUND {
    this.frames.length = 0;
    this.#size = size;
    for (let at = from; at < from + size; ) {
      const isLong = ((bytes[at] as number) & LONG) !== 0;
      const begin = at + (isLong ? LONG_HEAD_BYTES : SHORT_HEAD_BYTES);
      // The size is below the maximum, so its high word is 0.
      at = begin + (isLong ? bytes.readUInt32BE(begin - 4) : (bytes[at + 1] as number));
      this.frames.push(bytes.subarray(begin, at));
    }
    return (this.#found = ((bytes[from] as number) & COMMAND) === 0 ? MESSAGE : COMMAND_FOUND);
  }

  #refuse(what: string): number {
    this.problem = `the peer ${what}`;
    return 0;
  }
}
