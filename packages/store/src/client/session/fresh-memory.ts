// Memory at addresses that no late writer knows: what was unmounted is not mapped again while somebody may still write there.
import { fail } from "@svc/contract/failures.ts";
import { addressOf, alloc, openShm } from "@svc/transfer/memory.ts";

/** Within this a writer that was given an address may use it: the master's put_start_release_timeout. */
const LATE_MS = 600_000;
/** The kernel gives another address each time, while those that will not do are held. */
const MAX_TRIES = 64;
/** Ranges remembered; past that the oldest is forgotten. */
const MAX_RANGES = 4096;

export type Bytes = Uint8Array<ArrayBuffer>;
type Used = { readonly start: bigint; readonly end: bigint; readonly untilMs: number };

export class FreshMemory {
  readonly #now: () => number;
  #used: Used[] = [];

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Zeroed. @throws TRANSFER_FAILED when the host has none left. */
  allocate(sizeBytes: number): Bytes {
    return this.#fresh(() => alloc(sizeBytes));
  }

  /** Of a shared memory object, from `offset` on. @throws TRANSFER_FAILED when there is none of that name, or it is shorter. */
  map(name: string, offset: number, sizeBytes: number): Bytes {
    return this.#fresh(() => openShm(name, offset + sizeBytes)).subarray(offset);
  }

  /** Gives the pages and the addresses back at once; the view is empty afterwards. No transfer may use them any more. */
  free(memory: Bytes): void {
    const start = addressOf(memory);
    this.#used.push({ start, end: start + BigInt(memory.byteLength), untilMs: this.#now() + LATE_MS });
    if (this.#used.length > MAX_RANGES) this.#used.shift();
    discard(memory);
  }

  #fresh(make: () => Bytes): Bytes {
    const now = this.#now();
    this.#used = this.#used.filter(({ untilMs }) => untilMs > now);
    const held: Bytes[] = [];
    try {
      while (held.length < MAX_TRIES) {
        const memory = make();
        const start = addressOf(memory);
        const end = start + BigInt(memory.byteLength);
        if (!this.#used.some((range) => range.start < end && start < range.end)) return memory;
        held.push(memory);
      }
    } finally {
      for (const memory of held) discard(memory);
    }
    return fail("CAPACITY_EXHAUSTED", `no address for ${held[0]?.byteLength} bytes that was not in use within the last ${LATE_MS / 1000} s; try again later`);
  }
}

/** A buffer that is detached lets its memory go without waiting for the collector. */
function discard(memory: Bytes): void {
  memory.buffer.transfer(0);
}
