// The resource usage of sandboxes, sampled every few seconds, a few sandboxes at a time; one hour per sandbox, in memory.
import { setTimeout as sleep } from "node:timers/promises";
import type { SandboxMetric } from "@svc/contract/observe.ts";
import type { Limits, RuntimeHandle, Usage } from "../runtime/runtime.ts";
import { metricOf, type Sample, SampleRing } from "./sample-ring.ts";

export type Measured = { readonly sandboxID: string; readonly handle: RuntimeHandle; readonly limits: Limits };

export type Bounds = { readonly startSeconds?: number | undefined; readonly endSeconds?: number | undefined };

export interface UsageLog {
  /** Returns up to 721 samples within the bounds, oldest first; of a running sandbox, the newest is at most one second old. */
  read(sandboxID: string, bounds?: Bounds): Promise<SandboxMetric[]>;
  newest(sandboxID: string): Promise<SandboxMetric | undefined>;
  /** Sums the newest samples of all running sandboxes. */
  totals(): UsageTotals;
  /** Starts sampling. */
  start(): void;
  close(): void;
}

export type UsageTotals = { memoryBytes: number; memoryLimitBytes: number; diskBytes: number; diskLimitBytes: number; cpuLimit: number };

export type UsageOptions = {
  running(): Iterable<Measured>;
  find(sandboxID: string): Measured | undefined;
  /** True if a client owns the sandbox, running or not; its samples are then kept. */
  isKept(sandboxID: string): boolean;
  measure(handle: RuntimeHandle): Promise<Usage>;
  /** Called with the counters of each regular sample. */
  readonly onReading?: (sandboxID: string, handle: RuntimeHandle, usage: Usage) => void;
  /** Called with the CPU seconds used since the previous sample. */
  readonly onCpu?: (seconds: number) => void;
  readonly wallMs?: () => number;
  readonly monotonicMs?: () => number;
};

export const SAMPLE_MS = 5_000;
const TICK_MS = 250;
/** A percentage over a shorter time would mostly show the clocks' resolution. */
const MIN_SPAN_MS = 100;
/** The maximum age of an answer's newest sample. */
const FRESH_MS = 1_000;
const SWEEP_MS = 60_000;

/** Counters restart with each start of a sandbox's processes; `life` identifies the start. */
type Reading = { readonly life: string; readonly cpuNs: number; readonly atMs: number };
type Track = {
  readonly ring: SampleRing;
  limits: Limits;
  /** The reading from which the next percentage is computed. */
  base: Reading | undefined;
  nextAtMs: number;
  /** A sample taken on demand; it is shown but not stored, since frequent requests must not shorten the hour. */
  fresh: { readonly sample: Sample; readonly atMs: number } | undefined;
  asking: Promise<void> | undefined;
};

export function openUsageLog(options: UsageOptions): UsageLog {
  const { running, find, isKept, measure, onReading, onCpu, wallMs = Date.now, monotonicMs = () => performance.now() } = options;
  const tracks = new Map<string, Track>();
  let timer: NodeJS.Timeout | undefined;
  let isTicking = false;
  let sweptAtMs = monotonicMs();

  function trackOf({ sandboxID, limits }: Measured): Track {
    let track = tracks.get(sandboxID);
    if (track === undefined) {
      track = { ring: new SampleRing(), limits, base: undefined, nextAtMs: 0, fresh: undefined, asking: undefined };
      tracks.set(sandboxID, track);
    }
    track.limits = limits;
    return track;
  }

  async function look({ handle }: Measured): Promise<{ usage: Usage; reading: Reading } | undefined> {
    const usage = await measure(handle).catch(() => undefined);
    // A cgroup that is being removed reads as zeros.
    if (usage === undefined || (usage.cpuNs === 0 && usage.memoryBytes === 0)) return undefined;
    return { usage, reading: { life: `${handle.pid}:${handle.pidStartTicks}`, cpuNs: usage.cpuNs, atMs: monotonicMs() } };
  }

  /** Takes a regular sample; the first reading of a sandbox's life is only the base for the next one. */
  async function sampleRegularly(each: Measured): Promise<void> {
    const track = trackOf(each);
    const found = await look(each);
    track.nextAtMs = monotonicMs() + SAMPLE_MS;
    if (found === undefined) return;
    const { usage, reading } = found;
    onReading?.(each.sandboxID, each.handle, usage);
    const span = spanOf(track.base, reading);
    if (span === undefined) {
      track.nextAtMs = monotonicMs() + FRESH_MS;
      if (track.base !== undefined && isSameLife(track.base, reading)) return; // a request has sampled it a moment ago
    } else {
      track.ring.push(sampleOf(wallMs(), usage, span));
      onCpu?.(span.cpuNs / 1e9);
    }
    track.base = reading;
  }

  async function sampleNow(each: Measured): Promise<void> {
    const track = trackOf(each);
    let found = await look(each);
    if (found === undefined) return;
    if (track.base === undefined || !isSameLife(track.base, found.reading)) track.base = found.reading;
    if (spanOf(track.base, found.reading) === undefined) {
      await sleep(MIN_SPAN_MS + 1);
      found = await look(each);
    }
    const span = found === undefined ? undefined : spanOf(track.base, found.reading);
    if (found !== undefined && span !== undefined) track.fresh = { sample: sampleOf(wallMs(), found.usage, span), atMs: monotonicMs() };
  }

  async function tick(): Promise<void> {
    if (isTicking) return;
    isTicking = true;
    try {
      const now = monotonicMs();
      const all = [...running()];
      const due = all.filter((each) => (tracks.get(each.sandboxID)?.nextAtMs ?? 0) <= now);
      // After a start all are due at once; a limit per tick spreads them over the interval.
      const most = Math.ceil((all.length * TICK_MS) / SAMPLE_MS) + 1;
      for (const each of due.slice(0, most)) await sampleRegularly(each);
      if (now - sweptAtMs > SWEEP_MS) sweep(new Set(all.map(({ sandboxID }) => sandboxID)), now);
    } finally {
      isTicking = false;
    }
  }

  function sweep(alive: ReadonlySet<string>, now: number): void {
    sweptAtMs = now;
    for (const [sandboxID, track] of tracks) {
      if (!isKept(sandboxID)) tracks.delete(sandboxID);
      else if (!alive.has(sandboxID)) track.ring.shrink();
    }
  }

  /** Concurrent requests share one sample. */
  async function freshen(sandboxID: string): Promise<void> {
    const each = find(sandboxID);
    if (each === undefined) return;
    const track = trackOf(each);
    const newestMs = Math.max(track.fresh?.sample.atMs ?? 0, track.ring.last?.atMs ?? 0);
    if (wallMs() - newestMs < FRESH_MS && newestMs <= wallMs()) return;
    track.asking ??= sampleNow(each).finally(() => {
      track.asking = undefined;
    });
    await track.asking;
  }

  function samplesOf({ ring, fresh }: Track): Sample[] {
    const samples = [...ring.samples()];
    if (fresh !== undefined && fresh.sample.atMs > (samples.at(-1)?.atMs ?? 0)) samples.push(fresh.sample);
    return samples;
  }

  return {
    async read(sandboxID, { startSeconds = 0, endSeconds = Number.MAX_SAFE_INTEGER } = {}) {
      await freshen(sandboxID);
      const track = tracks.get(sandboxID);
      if (track === undefined) return [];
      const metrics = samplesOf(track).map((sample) => metricOf(sample, track.limits));
      return metrics.filter(({ timestampUnix }) => timestampUnix >= startSeconds && timestampUnix <= endSeconds);
    },
    async newest(sandboxID) {
      await freshen(sandboxID);
      const track = tracks.get(sandboxID);
      const sample = track === undefined ? undefined : samplesOf(track).at(-1);
      return track === undefined || sample === undefined ? undefined : metricOf(sample, track.limits);
    },
    totals() {
      const sum: UsageTotals = { memoryBytes: 0, memoryLimitBytes: 0, diskBytes: 0, diskLimitBytes: 0, cpuLimit: 0 };
      for (const { sandboxID, limits } of running()) {
        const last = tracks.get(sandboxID)?.ring.last;
        sum.memoryBytes += last?.memoryBytes ?? 0;
        sum.diskBytes += last?.diskBytes ?? 0;
        sum.memoryLimitBytes += limits.memoryMB * 1024 * 1024;
        sum.diskLimitBytes += limits.diskSizeMB * 1024 * 1024;
        sum.cpuLimit += limits.cpuCount;
      }
      return sum;
    },
    start() {
      timer ??= setInterval(() => void tick(), TICK_MS).unref();
    },
    close() {
      clearInterval(timer);
      timer = undefined;
    },
  };
}

function isSameLife(base: Reading, now: Reading): boolean {
  return base.life === now.life && now.cpuNs >= base.cpuNs;
}

/** Returns the difference of two readings of the same life; undefined if they cannot be compared. */
function spanOf(base: Reading | undefined, now: Reading): { cpuNs: number; ms: number } | undefined {
  if (base === undefined || !isSameLife(base, now) || now.atMs - base.atMs < MIN_SPAN_MS) return undefined;
  return { cpuNs: now.cpuNs - base.cpuNs, ms: now.atMs - base.atMs };
}

function sampleOf(atMs: number, { memoryBytes, cacheBytes = 0, diskBytes }: Usage, { cpuNs, ms }: { cpuNs: number; ms: number }): Sample {
  return { atMs, cpuPct: (cpuNs / 1e6 / ms) * 100, memoryBytes, cacheBytes, diskBytes };
}
