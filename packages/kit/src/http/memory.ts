// Bounds the memory of large bodies and answers. While others wait, it evicts slow holders; waiting peers with the least memory come first.

/** Every connection may use this much without a grant. */
export const FREE_BYTES = 16 * 1024;
/** While others wait, a grant may last HOLD_MS, plus one millisecond for every BYTES_PER_MS of its bytes. */
const HOLD_MS = 2000;
const BYTES_PER_MS = 8 * 1024;

export interface MemoryHolder {
  readonly peer: string;
  /** Called when the requested bytes are granted. */
  granted(): void;
  /** Called when the holder must release its bytes. */
  evict(why: string): void;
}

type Grant = { readonly holder: MemoryHolder; readonly bytes: number; readonly sinceMs: number };

export class MemoryBudget {
  readonly #maxBytes: number;
  readonly #grants = new Map<MemoryHolder, Grant>();
  readonly #waiting = new Map<MemoryHolder, number>();
  #granted = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get grantedBytes(): number {
    return this.#granted;
  }

  /** Returns true if the holder may use that much at once; otherwise it waits for `granted`. A holder has one request at a time. */
  ask(holder: MemoryHolder, bytes: number): boolean {
    this.release(holder);
    if (bytes <= FREE_BYTES) return true;
    if (this.#waiting.size === 0 && this.#granted + bytes <= this.#maxBytes) {
      this.#grant(holder, bytes);
      return true;
    }
    this.#waiting.set(holder, bytes);
    return false;
  }

  release(holder: MemoryHolder): void {
    this.#waiting.delete(holder);
    const grant = this.#grants.get(holder);
    if (grant === undefined) return;
    this.#grants.delete(holder);
    this.#granted -= grant.bytes;
    if (this.#waiting.size > 0) setImmediate(() => this.#serve());
  }

  /** The owner calls this several times a second. */
  sweep(): void {
    if (this.#waiting.size === 0) return;
    const now = performance.now();
    for (const { holder, bytes, sinceMs } of this.#grants.values()) {
      const limitMs = HOLD_MS + bytes / BYTES_PER_MS;
      if (now - sinceMs > limitMs) holder.evict(`others wait for memory, and this request or its answer has taken more than ${Math.round(limitMs)} ms`);
    }
    this.#serve();
  }

  #grant(holder: MemoryHolder, bytes: number): void {
    this.#granted += bytes;
    this.#grants.set(holder, { holder, bytes, sinceMs: performance.now() });
  }

  /** Serves waiting holders, beginning with those of the peer with the fewest granted bytes. */
  #serve(): void {
    const grantedTo = new Map<string, number>();
    for (const { holder, bytes } of this.#grants.values()) grantedTo.set(holder.peer, (grantedTo.get(holder.peer) ?? 0) + bytes);
    const served: MemoryHolder[] = [];
    for (const [holder, bytes] of [...this.#waiting].sort(([a], [b]) => (grantedTo.get(a.peer) ?? 0) - (grantedTo.get(b.peer) ?? 0))) {
      if (this.#granted + bytes > this.#maxBytes) break;
      this.#waiting.delete(holder);
      this.#grant(holder, bytes);
      served.push(holder);
    }
    for (const holder of served) holder.granted();
  }
}
