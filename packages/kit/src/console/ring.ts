// The last hour of a server's metrics, sampled by itself into a bounded ring, for the console's charts.
import { statfsSync } from "node:fs";
import { freemem, loadavg, totalmem } from "node:os";
import type { ConsoleSample } from "@svc/contract/console.ts";
import type { Metrics, MetricValues } from "../metrics.ts";

/** One member of a sample: a gauge's sum, a counter's rate, or a quantile of a histogram's newest observations. */
export type Series = {
  readonly member: string;
  readonly metric: string;
  readonly as: "sum" | "rate" | "p50" | "p99";
  /** Only values whose label matches. */
  readonly where?: { readonly label: string; readonly matches: RegExp };
};

const EVERY_MS = 10_000;
const KEPT = 360;
/** Quantiles are of the observations of the last minute, since creates may be rare. */
const QUANTILE_SAMPLES = 6;

type Snapshot = { readonly atMs: number; readonly counts: ReadonlyMap<Series, ReadonlyMap<number, number>> };

export class Ring {
  readonly #metrics: Pick<Metrics, "values">;
  readonly #series: readonly Series[];
  readonly #folder: string;
  readonly #samples: ConsoleSample[] = [];
  #earlier: Snapshot[] = [];
  #timer: NodeJS.Timeout | undefined;

  /** `folder` is on the file system whose space matters. */
  constructor(metrics: Pick<Metrics, "values">, series: readonly Series[], folder: string) {
    this.#metrics = metrics;
    this.#series = series;
    this.#folder = folder;
  }

  start(): void {
    void this.sample();
    this.#timer = setInterval(() => void this.sample(), EVERY_MS).unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  get samples(): readonly ConsoleSample[] {
    return this.#samples;
  }

  async sample(): Promise<void> {
    const values = await this.#metrics.values();
    const atMs = performance.now();
    const sample: Record<string, number> & { at: number } = { at: Date.now(), memoryFree: freemem(), memoryTotal: totalmem(), load: loadavg()[0] ?? 0 };
    try {
      const { bavail, blocks, bsize } = statfsSync(this.#folder);
      Object.assign(sample, { diskFree: bavail * bsize, diskTotal: blocks * bsize });
    } catch {
      // A home that is gone has no space to report; the rest still counts.
    }
    const counts = new Map<Series, ReadonlyMap<number, number>>();
    for (const series of this.#series) {
      const found = values.find(({ name }) => name === series.metric);
      if (found === undefined) continue;
      const value = series.as === "sum" ? sumOf(found, series) : this.#change(series, bucketsOf(found, series), counts, atMs);
      if (value !== undefined) sample[series.member] = value;
    }
    this.#earlier = [...this.#earlier, { atMs, counts }].slice(-QUANTILE_SAMPLES);
    this.#samples.push(sample);
    if (this.#samples.length > KEPT) this.#samples.shift();
  }

  #change(series: Series, now: ReadonlyMap<number, number>, counts: Map<Series, ReadonlyMap<number, number>>, atMs: number): number | undefined {
    counts.set(series, now);
    const since = series.as === "rate" ? this.#earlier.at(-1) : this.#earlier[0];
    const before = since?.counts.get(series);
    if (since === undefined || before === undefined) return undefined;
    const total = (now.get(Number.POSITIVE_INFINITY) ?? 0) - (before.get(Number.POSITIVE_INFINITY) ?? 0);
    if (series.as === "rate") return (Math.max(0, total) * 1000) / (atMs - since.atMs);
    if (total <= 0) return undefined;
    const wanted = total * (series.as === "p50" ? 0.5 : 0.99);
    let lower = 0;
    let countBelow = 0;
    for (const [bound, count] of [...now].sort(([a], [b]) => a - b)) {
      const within = count - (before.get(bound) ?? 0);
      if (within >= wanted) {
        if (!Number.isFinite(bound)) return lower;
        return lower + (bound - lower) * ((wanted - countBelow) / Math.max(1, within - countBelow));
      }
      lower = bound;
      countBelow = within;
    }
    return lower;
  }
}

const isWanted = ({ where }: Series, labels: MetricValues["values"][number]["labels"]) =>
  where === undefined || where.matches.test(String(labels[where.label] ?? ""));

function sumOf({ values }: MetricValues, series: Series): number {
  return values.filter(({ labels }) => isWanted(series, labels)).reduce((sum, { value }) => sum + value, 0);
}

/** Returns a histogram's cumulative counts by upper bound; those of a counter have the bound infinity alone. */
function bucketsOf({ name, values }: MetricValues, series: Series): Map<number, number> {
  const buckets = new Map<number, number>();
  for (const { labels, value, metricName } of values) {
    if (!isWanted(series, labels)) continue;
    const isHistogram = metricName !== undefined && metricName !== name;
    if (isHistogram && !metricName.endsWith("_bucket")) continue;
    const bound = isHistogram && labels["le"] !== "+Inf" ? Number(labels["le"]) : Number.POSITIVE_INFINITY;
    buckets.set(bound, (buckets.get(bound) ?? 0) + value);
  }
  return buckets;
}

const failed = { label: "code", matches: /^5/ };
/** The series of every server that serves operations. */
export const commonSeries: readonly Series[] = [
  { member: "cpu", metric: "process_cpu_seconds_total", as: "rate" },
  { member: "rss", metric: "process_resident_memory_bytes", as: "sum" },
  { member: "requests", metric: "svc_http_request_seconds", as: "rate" },
  { member: "errors", metric: "svc_http_request_seconds", as: "rate", where: failed },
];

const inState = (state: string) => ({ label: "state", matches: new RegExp(`^${state}$`) });
export const nodeSeries: readonly Series[] = [
  ...commonSeries,
  { member: "running", metric: "svc_node_sandboxes", as: "sum", where: inState("running") },
  { member: "paused", metric: "svc_node_sandboxes", as: "sum", where: inState("paused") },
  { member: "waiting", metric: "svc_node_creates_waiting", as: "sum" },
  { member: "pool", metric: "svc_node_pool_sandboxes", as: "sum" },
  { member: "precreated", metric: "svc_node_precreated", as: "sum" },
  { member: "creates", metric: "svc_node_create_seconds", as: "rate" },
  { member: "createP50", metric: "svc_node_create_seconds", as: "p50" },
  { member: "createP99", metric: "svc_node_create_seconds", as: "p99" },
  { member: "forks", metric: "svc_node_fork_seconds", as: "rate" },
  { member: "forkP50", metric: "svc_node_fork_seconds", as: "p50" },
  { member: "forkP99", metric: "svc_node_fork_seconds", as: "p99" },
  { member: "resumes", metric: "svc_node_resume_seconds", as: "rate" },
  { member: "ended", metric: "svc_node_sandboxes_ended_total", as: "rate" },
];

export const gatewaySeries: readonly Series[] = [
  ...commonSeries,
  { member: "running", metric: "svc_gateway_sandboxes", as: "sum", where: inState("running") },
  { member: "paused", metric: "svc_gateway_sandboxes", as: "sum", where: inState("paused") },
  { member: "nodes", metric: "svc_gateway_nodes", as: "sum" },
];

const ofProcess = commonSeries.filter(({ metric }) => metric.startsWith("process_"));
export const masterSeries: readonly Series[] = [
  ...ofProcess,
  { member: "keys", metric: "svc_store_keys", as: "sum" },
  { member: "storeUsed", metric: "svc_store_used_bytes", as: "sum" },
  { member: "storeCapacity", metric: "svc_store_capacity_bytes", as: "sum" },
  { member: "evicted", metric: "svc_store_evicted_keys_total", as: "rate" },
];

export const indexerSeries: readonly Series[] = [
  ...ofProcess,
  { member: "requests", metric: "svc_indexer_request_seconds", as: "rate" },
  { member: "errors", metric: "svc_indexer_request_seconds", as: "rate", where: failed },
  { member: "blocks", metric: "svc_indexer_blocks", as: "sum" },
];
