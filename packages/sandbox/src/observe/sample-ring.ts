// The last hour of one sandbox's resource usage, in one typed array whose oldest samples are overwritten.
import type { SandboxMetric } from "@svc/contract/observe.ts";
import type { Limits } from "../runtime/runtime.ts";

export type Sample = {
  readonly atMs: number;
  readonly cpuPct: number;
  readonly memoryBytes: number;
  readonly cacheBytes: number;
  readonly diskBytes: number;
};

/** One hour, one sample every five seconds: 28 kB per sandbox. */
export const SAMPLES_KEPT = 720;
const FIRST_CAPACITY = 24;
const COLUMNS = 5;
const MIB = 1024 * 1024;

export class SampleRing {
  #numbers = new Float64Array(FIRST_CAPACITY * COLUMNS);
  #capacity = FIRST_CAPACITY;
  #count = 0;
  /** The index of the next sample. */
  #next = 0;

  get size(): number {
    return this.#count;
  }

  push({ atMs, cpuPct, memoryBytes, cacheBytes, diskBytes }: Sample): void {
    if (this.#count === this.#capacity && this.#capacity < SAMPLES_KEPT) this.#resize(Math.min(SAMPLES_KEPT, this.#capacity * 2));
    this.#numbers.set([atMs, cpuPct, memoryBytes, cacheBytes, diskBytes], this.#next * COLUMNS);
    this.#next = (this.#next + 1) % this.#capacity;
    this.#count = Math.min(this.#count + 1, this.#capacity);
  }

  /** Yields the samples, oldest first. */
  *samples(): Generator<Sample> {
    for (let back = this.#count; back > 0; back--) yield this.#at(back);
  }

  #at(back: number): Sample {
    const at = ((this.#next - back + this.#capacity) % this.#capacity) * COLUMNS;
    const [atMs = 0, cpuPct = 0, memoryBytes = 0, cacheBytes = 0, diskBytes = 0] = this.#numbers.subarray(at, at + COLUMNS);
    return { atMs, cpuPct, memoryBytes, cacheBytes, diskBytes };
  }

  get last(): Sample | undefined {
    return this.#count === 0 ? undefined : this.#at(1);
  }

  /** Keeps only the newest samples, of a sandbox that may stay paused for weeks. */
  shrink(): void {
    if (this.#capacity > FIRST_CAPACITY) this.#resize(FIRST_CAPACITY);
  }

  #resize(capacity: number): void {
    const kept = [...this.samples()].slice(-capacity);
    this.#numbers = new Float64Array(capacity * COLUMNS);
    this.#capacity = capacity;
    this.#count = 0;
    this.#next = 0;
    for (const sample of kept) this.push(sample);
  }
}

export function metricOf({ atMs, cpuPct, memoryBytes, cacheBytes, diskBytes }: Sample, limits: Limits): SandboxMetric {
  return {
    timestamp: new Date(atMs).toISOString(),
    timestampUnix: Math.floor(atMs / 1000),
    cpuCount: Math.max(1, Math.ceil(limits.cpuCount)),
    cpuUsedPct: Math.round(cpuPct * 100) / 100,
    memUsed: Math.round(memoryBytes),
    memTotal: limits.memoryMB * MIB,
    memCache: Math.round(cacheBytes),
    diskUsed: Math.round(diskBytes),
    diskTotal: limits.diskSizeMB * MIB,
  };
}
