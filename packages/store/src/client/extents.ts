// Memory leased ahead of puts: ranges of sizes that were needed before, so that a put sends its bytes at once and asks the master one thing.
import type { Extent } from "../rpc/shapes.ts";
import { call, type Flow } from "./flow.ts";
import { refusal } from "./session/refusal.ts";
import type { Wish } from "./wishes.ts";

export type LeasedExtent = Extent & { readonly untilMs: number };

type Bucket = { extents: LeasedExtent[]; ahead: number; leasedMs: number };

/** The part of a lease in which a write may begin: the rest is for the write, its commit, and clocks that drift. */
const USABLE = 0.6;
/** What a lease may be ahead of the need: bytes, and extents. */
const MAX_AHEAD_BYTES = 32 << 20;
const MAX_AHEAD = 128;
/** Leased again this soon, the next lease is for more. */
const OFTEN_MS = 5000;
const MAX_BUCKETS = 256;
const SWEEP_MS = 1000;

export type ExtentsOptions = { readonly clientID: string; readonly tenant: string; readonly isAhead: boolean };

export class Extents {
  readonly #options: ExtentsOptions;
  readonly #buckets = new Map<string, Bucket>();

  constructor(options: ExtentsOptions) {
    this.#options = options;
  }

  /**
   * Up to `count` extents for objects of that size, at least one.
   * @throws what the master refused it for: CAPACITY_EXHAUSTED where no holder has room.
   */
  *take(sizeBytes: number, wish: Wish, count: number, avoided: readonly string[]): Flow<LeasedExtent[]> {
    const bucket = this.#bucket(`${sizeBytes}/${wish.placement}`);
    const now = performance.now();
    const taken: LeasedExtent[] = [];
    while (taken.length < count && bucket.extents.length > 0) {
      const extent = bucket.extents.pop() as LeasedExtent;
      if (extent.untilMs > now) taken.push(extent);
    }
    if (taken.length === count) return taken;
    if (this.#options.isAhead) {
      const isOften = now - bucket.leasedMs < OFTEN_MS;
      bucket.ahead = isOften ? Math.min(bucket.ahead * 4, MAX_AHEAD, Math.floor(MAX_AHEAD_BYTES / sizeBytes)) : 0;
      bucket.ahead = Math.max(1, bucket.ahead);
      bucket.leasedMs = now;
    }
    const wanted = Math.max(count - taken.length, bucket.ahead);
    const { clientID, tenant } = this.#options;
    const lease = yield* call("LeaseExtents", clientID, BigInt(sizeBytes), BigInt(wanted), wish.config, avoided, tenant);
    if (!lease.ok) {
      if (taken.length > 0) return taken;
      const nofs = wish.config.nofReplicas > 0n ? ` and ${wish.config.nofReplicas} NOF replicas, which masters with enable_nof take` : "";
      throw refusal(lease.code, `memory for ${sizeBytes} bytes${nofs}`);
    }
    const untilMs = now + Number(lease.value.leaseMs) * USABLE;
    for (const extent of lease.value.extents) {
      if (taken.length < count) taken.push({ ...extent, untilMs });
      else bucket.extents.push({ ...extent, untilMs });
    }
    return taken;
  }

  /** One that was leased ahead, if there is one. */
  takeOne(sizeBytes: number, wish: Wish): LeasedExtent | undefined {
    const extent = this.#buckets.get(`${sizeBytes}/${wish.placement}`)?.extents.pop();
    return extent !== undefined && extent.untilMs > performance.now() ? extent : undefined;
  }

  /** One that was not written, or whose key was there already: the next put of that size may have it. */
  putBack(sizeBytes: number, wish: Wish, extent: LeasedExtent): void {
    this.#bucket(`${sizeBytes}/${wish.placement}`).extents.push(extent);
  }

  /** Takes out those that lie with a holder. */
  takeOf(endpoint: string): LeasedExtent[] {
    return this.#takeWhere((extent) => extent.ranges.some((range) => range.endpoint === endpoint));
  }

  /** Takes out those whose lease is near its end, which nobody needed: they are given back. */
  takeOld(): LeasedExtent[] {
    const now = performance.now();
    return this.#takeWhere((extent) => extent.untilMs < now + SWEEP_MS);
  }

  takeAll(): LeasedExtent[] {
    return this.#takeWhere(() => true);
  }

  get count(): number {
    let count = 0;
    for (const { extents } of this.#buckets.values()) count += extents.length;
    return count;
  }

  #takeWhere(isTaken: (extent: LeasedExtent) => boolean): LeasedExtent[] {
    const taken: LeasedExtent[] = [];
    for (const [name, bucket] of this.#buckets) {
      const kept: LeasedExtent[] = [];
      for (const extent of bucket.extents) (isTaken(extent) ? taken : kept).push(extent);
      bucket.extents = kept;
      if (kept.length === 0 && performance.now() - bucket.leasedMs > OFTEN_MS) this.#buckets.delete(name);
    }
    return taken;
  }

  #bucket(name: string): Bucket {
    const known = this.#buckets.get(name);
    if (known !== undefined) return known;
    const bucket: Bucket = { extents: [], ahead: 1, leasedMs: Number.NEGATIVE_INFINITY };
    // Sizes that never come again hold nothing, so forgetting one loses nothing.
    if (this.#buckets.size < MAX_BUCKETS) this.#buckets.set(name, bucket);
    return bucket;
  }
}

/** Gives extents back; one that was written in vain stays closed to others until no late byte can arrive there. */
export function* giveBack(clientID: string, extents: readonly LeasedExtent[], isFailed: boolean): Flow<void> {
  if (extents.length === 0) return;
  try {
    yield* call(
      "ReturnExtents",
      clientID,
      extents.map(({ id }) => id),
      isFailed,
    );
  } catch {
    // Unreturned, they end with their lease.
  }
}
