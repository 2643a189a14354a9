// Leases memory ahead of puts, for sizes that were used before, so that a put transfers its bytes at once and calls the master only to commit.
import { codes } from "../rpc/codes.ts";
import type { Extent } from "../rpc/shapes.ts";
import { call, type Flow } from "./flow.ts";
import type { PutPolicy } from "./put-policy.ts";
import { refusal } from "./session/refusal.ts";

export type LeasedExtent = Extent & { readonly untilMs: number };

type Bucket = { readonly sizeBytes: number; extents: LeasedExtent[]; ahead: number; leasedMs: number; usedMs: number };

/** The share of a lease in which a write may begin; the rest covers the write, its commit, and clock drift. */
const USABLE = 0.6;
/** Bounds what is leased ahead: the bytes in total, and the extents of one lease. */
const MAX_AHEAD_BYTES = 32 << 20;
const MAX_AHEAD = 128;
/** If the next lease comes this soon, it is larger. */
const OFTEN_MS = 5000;
/** Sizes that were not put for this long keep no extents, since others may need the memory. */
const UNUSED_MS = 10_000;
const MAX_BUCKETS = 256;
/** Surplus above this is returned before more is leased. */
const MAX_SURPLUS_BYTES = 4 << 20;
const SWEEP_MS = 1000;

export type ExtentsOptions = { readonly clientID: string; readonly tenant: string; readonly isAhead: boolean };

export class Extents {
  readonly #options: ExtentsOptions;
  readonly #buckets = new Map<string, Bucket>();
  #keptBytes = 0;
  /** Extents that are neither used nor kept; the next sweep returns them. */
  #surplus: LeasedExtent[] = [];
  #surplusBytes = 0;

  constructor(options: ExtentsOptions) {
    this.#options = options;
  }

  /**
   * Takes up to `count` extents for objects of that size, at least one.
   * @throws the master's refusal: CAPACITY_EXHAUSTED where no holder has capacity.
   */
  *take(sizeBytes: number, policy: PutPolicy, count: number, avoided: readonly string[]): Flow<LeasedExtent[]> {
    const bucket = this.#bucket(sizeBytes, policy);
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
    const lease = yield* call("LeaseExtents", clientID, BigInt(sizeBytes), BigInt(wanted), policy.config, avoided, tenant);
    if (!lease.ok) {
      if (taken.length > 0) return taken;
      const nofs = policy.config.nofReplicas > 0n ? ` and ${policy.config.nofReplicas} NOF replicas, which masters with enable_nof take` : "";
      throw refusal(lease.code, `memory for ${sizeBytes} bytes${nofs}`);
    }
    const untilMs = now + Number(lease.value.leaseMs) * USABLE;
    for (const extent of lease.value.extents) {
      if (taken.length < count) taken.push({ ...extent, untilMs });
      else this.putBack(sizeBytes, policy, { ...extent, untilMs });
    }
    return taken;
  }

  /** Takes an extent that was leased ahead, if there is one. */
  takeOne(sizeBytes: number, policy: PutPolicy): LeasedExtent | undefined {
    return this.#takeFrom(this.#buckets.get(nameOf(sizeBytes, policy)));
  }

  /** Puts back an extent that was not written, or whose key existed already, for the next put of that size, unless enough are kept. */
  putBack(sizeBytes: number, policy: PutPolicy, extent: LeasedExtent): void {
    const bucket = this.#bucket(sizeBytes, policy);
    if (bucket !== undefined && this.#keptBytes + sizeBytes <= Math.max(MAX_AHEAD_BYTES, sizeBytes)) {
      bucket.extents.push(extent);
      this.#keptBytes += sizeBytes;
    } else {
      this.#surplus.push(extent);
      this.#surplusBytes += sizeBytes;
    }
  }

  /** Removes and returns the extents on one holder. */
  takeOf(endpoint: string): LeasedExtent[] {
    return this.#takeWhere((extent) => extent.ranges.some((range) => range.endpoint === endpoint));
  }

  /** Removes and returns extents that are of no more use, so that the caller returns them: near the end of their lease, of unused sizes, or surplus. */
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
    // Expired extents stay for the sweep.
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

  /** Returns undefined for a new size when there are too many buckets: no extents of that size are kept. */
  #bucket(sizeBytes: number, policy: PutPolicy): Bucket | undefined {
    const name = nameOf(sizeBytes, policy);
    const known = this.#buckets.get(name);
    if (known !== undefined || this.#buckets.size >= MAX_BUCKETS) return known;
    const bucket: Bucket = { sizeBytes, extents: [], ahead: 1, leasedMs: Number.NEGATIVE_INFINITY, usedMs: performance.now() };
    this.#buckets.set(name, bucket);
    return bucket;
  }
}

const nameOf = (sizeBytes: number, { placement }: PutPolicy) => `${sizeBytes}/${placement}`;

/** The master's answers about an extent that it no longer leases; a master that reads its log has forgotten all of them. */
const LOST: readonly number[] = [codes.INVALID_WRITE, codes.SEGMENT_NOT_FOUND, codes.UNAVAILABLE_IN_CURRENT_MODE, codes.UNAVAILABLE_IN_CURRENT_STATUS];
export const isLost = (code: number): boolean => LOST.includes(code);

/** Returns extents to the master. After a failed write (`isFailed`) an extent is not reused until no late byte can arrive there. */
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
    // An extent that is not returned ends with its lease.
  }
}
