// Bytes as they come, made into messages and commands: used where they lie, and kept only where a message is cut by the end of what was read.
import { GrowingBuffer } from "../growing-buffer.ts";
import { COMMAND, LONG, LONG_HEAD_BYTES, MORE, SHORT_HEAD_BYTES } from "./wire-format.ts";

/** Room that is kept for the next message that is cut. */
const KEPT_BYTES = 64 * 1024;
/** Events have three frames, replies of replays up to four. */
const MAX_FRAMES = 8;
const MAX_COMMAND_BYTES = 4096;

/** What is in front: nothing whole, a message, or a command. */
export const NOTHING = 0;
export const MESSAGE = 1;
export const COMMAND_FOUND = 2;

/**
 * `front` says what comes next, `shift` goes on behind it. What is in front is valid until `shift`, `stow` or `feed`: its frames are
 * views of what was fed, or of what was kept.
 */
export class Decoder {
  /** Why nothing more can be read: the peer has broken the rules, or the limits. */
  problem = "";
  readonly frames: Buffer[] = [];
  readonly #maxBytes: number;
  #bytes: Buffer = Buffer.alloc(0);
  #at = 0;
  #end = 0;
  /** What is in front takes so many bytes, of `#bytes` or of `#cut`. */
  #size = 0;
  /** The beginning of a message whose rest has not come; once that is there it is in front. */
  readonly #cut = new GrowingBuffer();
  /** What it takes, as far as its heads tell. */
  #wanted = 0;
  #found: typeof NOTHING | typeof MESSAGE | typeof COMMAND_FOUND = NOTHING;

  /** `maxBytes`: of a message's frames together. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes that a message which is cut takes, as far as is known; 0 while none is. */
  get wantedBytes(): number {
    return this.#cut.size > 0 ? this.#wanted : 0;
  }

  /** Whether all that was fed is used up. */
  get isEmpty(): boolean {
    return this.#found === NOTHING && this.#at === this.#end;
  }

  /** Only when all before is used up. The bytes must stay until then, or until `stow`. */
  feed(bytes: Buffer, length: number): void {
    this.#bytes = bytes;
    this.#at = 0;
    this.#end = length;
  }

  /** Keeps what was fed and is not used up: its buffer is read into again. */
  stow(): void {
    if (this.#at === this.#end) return;
    this.#bytes = Buffer.from(this.#bytes.subarray(this.#at, this.#end));
    this.#end = this.#bytes.length;
    this.#at = 0;
    if (this.#found !== NOTHING && this.#cut.size === 0) this.#found = NOTHING;
  }

  front(): typeof NOTHING | typeof MESSAGE | typeof COMMAND_FOUND {
    if (this.#found !== NOTHING || this.problem !== "") return this.#found;
    if (this.#cut.size > 0) return this.#complete();
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
    if (this.#cut.size > 0) this.#cut.clear(KEPT_BYTES);
    else this.#at += this.#size;
    this.#found = NOTHING;
  }

  #complete(): typeof NOTHING | typeof MESSAGE | typeof COMMAND_FOUND {
    for (;;) {
      const end = Math.min(this.#end, this.#at + this.#wanted - this.#cut.size);
      this.#cut.append(this.#bytes, this.#at, end);
      this.#at = end;
      if (this.#cut.size < this.#wanted) return NOTHING;
      const bytes = this.#cut.view();
      const size = this.#measure(bytes, 0, bytes.length);
      if (this.problem !== "") return NOTHING;
      if (size === bytes.length) return this.#read(bytes, 0, size);
      this.#wanted = size;
    }
  }

  /** What the message or command at `from` takes; more than is there where it is not whole, at least so much then. */
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
      // Below the maximum, so its high word is 0.
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
