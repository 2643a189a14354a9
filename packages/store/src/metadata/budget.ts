// Bounds the memory that clients' requests may take at once, and decides which client is
// evicted: slow requests first, and service goes first to peers with the least memory.
import { performance } from "node:perf_hooks";

/** Every connection may use this much without asking. */
export const FREE_BYTES = 16 * 1024;
/** A larger grant may last this long while others wait. */
const HOLD_MS = 2000;

export interface Holder {
  readonly peer: string;
  /** Called when the requested bytes are granted. */
  granted(): void;
  /** Called when the holder must release its bytes. */
  evict(reason: string): void;
}

type Grant = { readonly holder: Holder; readonly bytes: number; readonly sinceMs: number };

export class Budget {
  readonly #maxBytes: number;
  readonly #grants = new Map<Holder, Grant>();
  readonly #waiting = new Map<Holder, number>();
  #granted = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get grantedBytes(): number {
    return this.#granted;
  }

  /** Returns true if the holder may use that much at once; otherwise it waits for `granted`. A holder has one request at a time. */
  ask(holder: Holder, bytes: number): boolean {
    this.release(holder);
    if (bytes <= FREE_BYTES) return true;
    if (this.#waiting.size === 0 && this.#granted + bytes <= this.#maxBytes) {
      this.#grant(holder, bytes);
      return true;
    }
    this.#waiting.set(holder, bytes);
    return false;
  }

  release(holder: Holder): void {
    this.#waiting.delete(holder);
    const grant = this.#grants.get(holder);
    if (grant === undefined) return;
    this.#grants.delete(holder);
    this.#granted -= grant.bytes;
    if (this.#waiting.size > 0) setImmediate(() => this.#serve());
  }

  /** The owner calls this about once a second. */
  sweep(): void {
    if (this.#waiting.size === 0) return;
    const now = performance.now();
    for (const { holder, sinceMs } of this.#grants.values())
      if (now - sinceMs > HOLD_MS) holder.evict(`others waited while this request or its answer took longer than ${HOLD_MS} ms`);
    this.#serve();
  }

  #grant(holder: Holder, bytes: number): void {
    this.#granted += bytes;
    this.#grants.set(holder, { holder, bytes, sinceMs: performance.now() });
  }

  /** Serves waiting holders, beginning with those of the peer with the fewest granted bytes. */
  #serve(): void {
    const grantedTo = new Map<string, number>();
    for (const { holder, bytes } of this.#grants.values()) grantedTo.set(holder.peer, (grantedTo.get(holder.peer) ?? 0) + bytes);
    const served: Holder[] = [];
    for (const [holder, bytes] of [...this.#waiting].sort(([a], [b]) => (grantedTo.get(a.peer) ?? 0) - (grantedTo.get(b.peer) ?? 0))) {
      if (this.#granted + bytes > this.#maxBytes) break;
      this.#waiting.delete(holder);
      this.#grant(holder, bytes);
      served.push(holder);
    }
    for (const holder of served) holder.granted();
  }
}
