// The memory into which one connection reads: a shared buffer while it transfers little, large buffers of its own in bulk transfers.

/** All connections that transfer little read into this buffer, since each read is processed before the next begins. */
const shared = Buffer.allocUnsafeSlow(64 * 1024);
const largeBytes = 256 * 1024;
/** Large buffers kept for reuse, 16 MiB in all. */
const spareLimit = 64;
const spares: Buffer[] = [];
/** Large buffers in use, 128 MiB in all; beyond it bulk transfers read into the shared buffer too, which costs a copy. */
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
 * A large buffer has one of three owners: the socket, which reads into it; a write, until the kernel has taken its bytes; or the spares. The
 * socket changes buffers only right after a read, so its buffer is never given away before.
 */
export class ReadBuffer {
  /** The buffer into which the socket reads. */
  #current: Buffer = shared;
  /** The buffer for the reads after this one. */
  #upcoming: Buffer = shared;
  /** True if a write owns `#current` already. */
  #lent = false;
  #started = false;

  /**
   * Called by the socket at first and after each read. Returning undefined keeps the current buffer and saves setting it again; the socket
   * accepts nothing but a Uint8Array as a new one.
   */
  next(): Buffer {
    if (this.#started && this.#upcoming === this.#current) return undefined as unknown as Buffer;
    this.#started = true;
    if (!this.#lent) giveLarge(this.#current);
    this.#lent = false;
    this.#current = this.#upcoming;
    return this.#current;
  }

  /** Says during a read whether `bytes` may be lent to a write instead of being copied. */
  canLend(bytes: Buffer): boolean {
    return bytes === this.#current && bytes !== shared && !this.#lent;
  }

  /** Gives the buffer to a write during a read; returns the function that the write calls when it is done. */
  lend(): () => void {
    const buffer = this.#current;
    this.#lent = true;
    if (this.#upcoming === buffer) this.#upcoming = takeLarge();
    return () => giveLarge(buffer);
  }

  /** Switches to large reads for a bulk transfer. */
  enlarge(): void {
    if (this.#upcoming === shared) this.#upcoming = takeLarge();
  }

  /** Ends a bulk transfer: after the current read, or else the next one, the shared buffer is used again. */
  settle(): void {
    if (this.#upcoming !== this.#current) giveLarge(this.#upcoming);
    this.#upcoming = shared;
  }

  /** Called when the socket is closed and reads no more. */
  close(): void {
    this.settle();
    if (!this.#lent) giveLarge(this.#current);
    this.#lent = false;
    this.#current = shared;
  }
}
