// Allocates memory at addresses that no late writer knows: an unmounted range is not mapped again while a peer may still write to it.
import { fail } from "@svc/contract/failures.ts";
import { addressOf, alloc, openShm } from "@svc/transfer/memory.ts";

/** A writer may use an address that it was given for this long: the master's put_start_release_timeout. */
const LATE_MS = 600_000;
/** The kernel returns a different address each time, since unsuitable ranges stay mapped until the search ends. */
const MAX_TRIES = 64;
/** Bounds the remembered ranges; beyond it the oldest one is forgotten. */
const MAX_RANGES = 4096;

export type Bytes = Uint8Array<ArrayBuffer>;
type Used = { readonly start: bigint; readonly end: bigint; readonly untilMs: number };

export class FreshMemory {
  readonly #now: () => number;
  #used: Used[] = [];

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Returns zeroed memory. @throws TRANSFER_FAILED when the host has none left. */
  allocate(sizeBytes: number): Bytes {
    return this.#fresh(() => alloc(sizeBytes));
  }

  /** Maps a shared memory object from `offset` on. @throws TRANSFER_FAILED when there is none of that name, or it is shorter. */
  map(name: string, offset: number, sizeBytes: number): Bytes {
    return this.#fresh(() => openShm(name, offset + sizeBytes)).subarray(offset);
  }

  /** Releases the pages and addresses at once; the view is empty afterwards. No transfer may use them any more. */
  free(memory: Bytes): void {
    const start = addressOf(memory);
    this.#used.push({ start, end: start + BigInt(memory.byteLength), untilMs: this.#now() + LATE_MS });
    if (this.#used.length > MAX_RANGES) this.#used.shift();
    discard(memory);
  }

  #fresh(make: () => Bytes): Bytes {
    const now = this.#now();
    this.#used = this.#used.filter(({ untilMs }) => untilMs > now);
    const unsuitable: Bytes[] = [];
    try {
      while (unsuitable.length < MAX_TRIES) {
        const memory = make();
        const start = addressOf(memory);
        const end = start + BigInt(memory.byteLength);
        if (!this.#used.some((range) => range.start < end && start < range.end)) return memory;
        unsuitable.push(memory);
      }
    } finally {
      for (const memory of unsuitable) discard(memory);
    }
    return fail(
      "CAPACITY_EXHAUSTED",
      `no address for ${unsuitable[0]?.byteLength} bytes that was not in use within the last ${LATE_MS / 1000} s; try again later`,
    );
  }
}

/** Detaching a buffer frees its memory without waiting for the garbage collector. */
function discard(memory: Bytes): void {
  memory.buffer.transfer(0);
}
