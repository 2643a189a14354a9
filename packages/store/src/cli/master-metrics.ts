// Parses the master's metrics: gauges and counters by name, operations with their counts and latency buckets.
import { type Arguments, ask } from "./arguments.ts";

export type Operation = { readonly count: number; readonly seconds: number; readonly failedItems: number; readonly buckets: ReadonlyMap<number, number> };
export type MasterMetrics = {
  readonly atMs: number;
  readonly keys: number;
  readonly usedBytes: number;
  readonly capacityBytes: number;
  readonly unfinishedPuts: number;
  readonly evictedKeys: number;
  readonly evictedBytes: number;
  readonly lostKeys: number;
  readonly connections: number;
  readonly operations: ReadonlyMap<string, Operation>;
};

export async function metricsFrom(args: Arguments): Promise<MasterMetrics> {
  return parseMetrics(await (await ask(args, "/metrics")).text(), performance.now());
}

export function parseMetrics(text: string, atMs: number): MasterMetrics {
  const values = new Map<string, number>();
  const operations = new Map<string, { count: number; seconds: number; failedItems: number; buckets: Map<number, number> }>();
  for (const line of text.split("\n")) {
    const [, name = "", labels = "", number = ""] = /^(svc_store_\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (name === "") continue;
    const operation = /operation="([^"]*)"/.exec(labels)?.[1];
    if (operation === undefined) {
      if (labels === "") values.set(name, Number(number));
      continue;
    }
    const entry = operations.get(operation) ?? { count: 0, seconds: 0, failedItems: 0, buckets: new Map() };
    operations.set(operation, entry);
    const le = /le="([^"]*)"/.exec(labels)?.[1];
    if (name === "svc_store_rpc_seconds_bucket" && le !== undefined) entry.buckets.set(le === "+Inf" ? Infinity : Number(le), Number(number));
    else if (name === "svc_store_rpc_seconds_count") entry.count = Number(number);
    else if (name === "svc_store_rpc_seconds_sum") entry.seconds = Number(number);
    else if (name === "svc_store_rpc_failed_items_total") entry.failedItems = Number(number);
  }
  const value = (name: string) => values.get(`svc_store_${name}`) ?? 0;
  return {
    atMs,
    keys: value("keys"),
    usedBytes: value("used_bytes"),
    capacityBytes: value("capacity_bytes"),
    unfinishedPuts: value("unfinished_puts"),
    evictedKeys: value("evicted_keys_total"),
    evictedBytes: value("evicted_bytes_total"),
    lostKeys: value("lost_keys_total"),
    connections: value("rpc_connections"),
    operations,
  };
}

export type Rate = {
  readonly operation: string;
  readonly perSecond: number;
  readonly meanUs: number;
  readonly p99Us: number;
  readonly failedPerSecond: number;
};

/** Returns the rates between two samples; operations without calls are left out. After a master's restart its counters start at zero. */
export function ratesBetween(before: MasterMetrics, after: MasterMetrics): Rate[] {
  const seconds = Math.max(0.001, (after.atMs - before.atMs) / 1000);
  const rates: Rate[] = [];
  for (const [operation, now] of after.operations) {
    const known = before.operations.get(operation);
    const then = known === undefined || known.count > now.count ? { count: 0, seconds: 0, failedItems: 0, buckets: new Map<number, number>() } : known;
    const count = now.count - then.count;
    if (count <= 0) continue;
    rates.push({
      operation,
      perSecond: count / seconds,
      meanUs: ((now.seconds - then.seconds) / count) * 1e6,
      p99Us: quantile(then.buckets, now.buckets, count, 0.99) * 1e6,
      failedPerSecond: Math.max(0, now.failedItems - then.failedItems) / seconds,
    });
  }
  return rates.sort((a, b) => b.perSecond - a.perSecond);
}

/** Returns the bound of the bucket that contains the quantile, or the largest bound for values beyond it. */
function quantile(before: ReadonlyMap<number, number>, after: ReadonlyMap<number, number>, count: number, share: number): number {
  const bounds = [...after.keys()].filter(Number.isFinite).sort((a, b) => a - b);
  return bounds.find((bound) => (after.get(bound) ?? 0) - (before.get(bound) ?? 0) >= count * share) ?? bounds.at(-1) ?? 0;
}
