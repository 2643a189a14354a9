// The memory one connection reads into: shared while it moves little, large buffers of its own while it moves bulk.

/** All connections that move little read into this one: a read is used up before the next begins. */
const shared = Buffer.allocUnsafeSlow(64 * 1024);
const largeBytes = 256 * 1024;
/** Large buffers kept for reuse, 16 MiB in all. */
const spareLimit = 64;
const spares: Buffer[] = [];
/** Large buffers in use, 128 MiB in all; past it connections that move bulk read into the shared one, too, which costs a copy. */
const inUseLimit = 512;
let inUse = 0;

function takeLarge(): Buffer {
  if (inUse >= inUseLimit) return shared;
  inUse++;
  return spares.pop() ?? Buffer.allocUnsafeSlow(largeBytes);
}

function giveLarge(buffer: Buffer): void {
  if (buffer === shared) return;
  inUse--;
  if (spares.length < spareLimit) spares.push(buffer);
}

/**
 * A large buffer is in one of three hands: the socket's, which reads into it; a write's, until the kernel has taken its
 * bytes; or among the spares. The socket changes buffers only right after a read, so a buffer that it holds is never
 * given away before.
 */
export class ReadBuffer {
  /** What the socket reads into. */
  #current: Buffer = shared;
  /** What it reads into after this read. */
  #upcoming: Buffer = shared;
  /** Whether a write owns `#current` already. */
  #lent = false;
  #started = false;

  /**
   * Asked by the socket at first and after each read. Undefined, for "go on with the one you have", saves setting the
   * same buffer again; the socket looks at nothing but a Uint8Array.
   */
  next(): Buffer {
    if (this.#started && this.#upcoming === this.#current) return undefined as unknown as Buffer;
    this.#started = true;
    if (!this.#lent) giveLarge(this.#current);
    this.#lent = false;
    this.#current = this.#upcoming;
    return this.#current;
  }

  /** During a read: whether `bytes` may be lent to a write instead of being copied. */
  canLend(bytes: Buffer): boolean {
    return bytes === this.#current && bytes !== shared && !this.#lent;
  }

  /** During a read: the buffer is a write's from now on; returns what the write calls when it is done. */
  lend(): () => void {
    const buffer = this.#current;
    this.#lent = true;
    if (this.#upcoming === buffer) this.#upcoming = takeLarge();
    return () => giveLarge(buffer);
  }

  /** Bulk is coming: the next reads are large. */
  enlarge(): void {
    if (this.#upcoming === shared) this.#upcoming = takeLarge();
  }

  /** Bulk is over: after the read that goes on, or else the next one, the shared buffer serves again. */
  settle(): void {
    if (this.#upcoming !== this.#current) giveLarge(this.#upcoming);
    this.#upcoming = shared;
  }

  /** The socket is closed and reads no more. */
  close(): void {
    this.settle();
    if (!this.#lent) giveLarge(this.#current);
    this.#lent = false;
    this.#current = shared;
  }
}
