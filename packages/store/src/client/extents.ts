// Memory leased ahead of puts: ranges of sizes that were needed before, so that a put sends its bytes at once and asks the master one thing.
import { codes } from "../rpc/codes.ts";
import type { Extent } from "../rpc/shapes.ts";
import { call, type Flow } from "./flow.ts";
import { refusal } from "./session/refusal.ts";
import type { Wish } from "./wishes.ts";

export type LeasedExtent = Extent & { readonly untilMs: number };

type Bucket = { readonly sizeBytes: number; extents: LeasedExtent[]; ahead: number; leasedMs: number; usedMs: number };

/** The part of a lease in which a write may begin: the rest is for the write, its commit, and clocks that drift. */
const USABLE = 0.6;
/** What all that is kept may be ahead of the need: bytes of values; and extents of one lease. */
const MAX_AHEAD_BYTES = 32 << 20;
const MAX_AHEAD = 128;
/** Leased again this soon, the next lease is for more. */
const OFTEN_MS = 5000;
/** Of a size that nobody put for so long nothing is kept: it would be missing to others. */
const UNUSED_MS = 10_000;
const MAX_BUCKETS = 256;
/** So much that is not kept is given back before more is leased. */
const MAX_SURPLUS_BYTES = 4 << 20;
const SWEEP_MS = 1000;

export type ExtentsOptions = { readonly clientID: string; readonly tenant: string; readonly isAhead: boolean };

export class Extents {
  readonly #options: ExtentsOptions;
  readonly #buckets = new Map<string, Bucket>();
  #keptBytes = 0;
  /** Neither used nor kept: they go back with the next sweep. */
  #surplus: LeasedExtent[] = [];
  #surplusBytes = 0;

  constructor(options: ExtentsOptions) {
    this.#options = options;
  }

  /**
   * Up to `count` extents for objects of that size, at least one.
   * @throws what the master refused it for: CAPACITY_EXHAUSTED where no holder has room.
   */
  *take(sizeBytes: number, wish: Wish, count: number, avoided: readonly string[]): Flow<LeasedExtent[]> {
    const bucket = this.#bucket(sizeBytes, wish);
    const taken: LeasedExtent[] = [];
    while (taken.length < count) {
      const extent = this.#takeFrom(bucket);
      if (extent === undefined) break;
      taken.push(extent);
    }
    if (taken.length === count) return taken;
    if (this.#surplusBytes > MAX_SURPLUS_BYTES) yield* giveBack(this.#options.clientID, this.#takeSurplus(), false);
    const now = performance.now();
    if (this.#options.isAhead && bucket !== undefined) {
      const isOften = now - bucket.leasedMs < OFTEN_MS;
      bucket.ahead = isOften ? Math.min(bucket.ahead * 4, MAX_AHEAD, Math.floor((MAX_AHEAD_BYTES - this.#keptBytes) / sizeBytes)) : 0;
      bucket.ahead = Math.max(1, bucket.ahead);
      bucket.leasedMs = now;
    }
    const wanted = Math.max(count - taken.length, bucket?.ahead ?? 1);
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
      else this.putBack(sizeBytes, wish, { ...extent, untilMs });
    }
    return taken;
  }

  /** One that was leased ahead, if there is one. */
  takeOne(sizeBytes: number, wish: Wish): LeasedExtent | undefined {
    return this.#takeFrom(this.#buckets.get(nameOf(sizeBytes, wish)));
  }

  /** One that was not written, or whose key was there already: the next put of that size may have it, unless enough is kept. */
  putBack(sizeBytes: number, wish: Wish, extent: LeasedExtent): void {
    const bucket = this.#bucket(sizeBytes, wish);
    if (bucket !== undefined && this.#keptBytes + sizeBytes <= Math.max(MAX_AHEAD_BYTES, sizeBytes)) {
      bucket.extents.push(extent);
      this.#keptBytes += sizeBytes;
    } else {
      this.#surplus.push(extent);
      this.#surplusBytes += sizeBytes;
    }
  }

  /** Takes out those that lie with a holder. */
  takeOf(endpoint: string): LeasedExtent[] {
    return this.#takeWhere((extent) => extent.ranges.some((range) => range.endpoint === endpoint));
  }

  /** Takes out what nobody needs: those whose lease is near its end, whose size is not put any more, and those that are not kept. They are given back. */
  takeOld(): LeasedExtent[] {
    const now = performance.now();
    return [...this.#takeSurplus(), ...this.#takeWhere((extent, { usedMs }) => extent.untilMs < now + SWEEP_MS || usedMs < now - UNUSED_MS)];
  }

  takeAll(): LeasedExtent[] {
    return [...this.#takeSurplus(), ...this.#takeWhere(() => true)];
  }

  get count(): number {
    let count = this.#surplus.length;
    for (const { extents } of this.#buckets.values()) count += extents.length;
    return count;
  }

  #takeFrom(bucket: Bucket | undefined): LeasedExtent | undefined {
    if (bucket === undefined) return undefined;
    const now = performance.now();
    bucket.usedMs = now;
    // Those that are too old stay for the sweep.
    const at = bucket.extents.findLastIndex(({ untilMs }) => untilMs > now);
    if (at < 0) return undefined;
    this.#keptBytes -= bucket.sizeBytes;
    return bucket.extents.splice(at, 1)[0];
  }

  #takeSurplus(): LeasedExtent[] {
    const taken = this.#surplus;
    this.#surplus = [];
    this.#surplusBytes = 0;
    return taken;
  }

  #takeWhere(isTaken: (extent: LeasedExtent, bucket: Bucket) => boolean): LeasedExtent[] {
    const taken: LeasedExtent[] = [];
    for (const [name, bucket] of this.#buckets) {
      const kept: LeasedExtent[] = [];
      for (const extent of bucket.extents) (isTaken(extent, bucket) ? taken : kept).push(extent);
      this.#keptBytes -= (bucket.extents.length - kept.length) * bucket.sizeBytes;
      bucket.extents = kept;
      if (kept.length === 0 && performance.now() - bucket.usedMs > OFTEN_MS) this.#buckets.delete(name);
    }
    return taken;
  }

  /** None for a new size where there are too many: nothing of it is kept. */
  #bucket(sizeBytes: number, wish: Wish): Bucket | undefined {
    const name = nameOf(sizeBytes, wish);
    const known = this.#buckets.get(name);
    if (known !== undefined || this.#buckets.size >= MAX_BUCKETS) return known;
    const bucket: Bucket = { sizeBytes, extents: [], ahead: 1, leasedMs: Number.NEGATIVE_INFINITY, usedMs: performance.now() };
    this.#buckets.set(name, bucket);
    return bucket;
  }
}

const nameOf = (sizeBytes: number, { placement }: Wish) => `${sizeBytes}/${placement}`;

/** What the master says of an extent that it does not lease any more; one that reads its log has forgotten all of them. */
const LOST: readonly number[] = [codes.INVALID_WRITE, codes.SEGMENT_NOT_FOUND, codes.UNAVAILABLE_IN_CURRENT_MODE, codes.UNAVAILABLE_IN_CURRENT_STATUS];
export const isLost = (code: number): boolean => LOST.includes(code);

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
