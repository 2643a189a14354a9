// The Prometheus metrics of the indexer: counted where things happen, and collected on request.
import type { Metrics } from "@svc/kit/metrics.ts";
import { metricsOf, type NativeIndex, outcomes } from "../index/native.ts";
import type { PendingBudget } from "../index/order.ts";
import type { Registry } from "../state/registry.ts";
import type { Snapshots } from "../state/snapshot.ts";
import { Counts } from "../stream/counts.ts";

const batchFields = ["batches", "replayedBatches", "malformedFrames", "duplicateBatches", "gaps", "healedGaps", "lostGaps", "restarts", "disconnects"] as const;
const batchLabels: Record<(typeof batchFields)[number], string> = {
  batches: "received",
  replayedBatches: "replayed",
  malformedFrames: "malformed",
  duplicateBatches: "duplicate",
  gaps: "gap",
  healedGaps: "gap_healed",
  lostGaps: "gap_lost",
  restarts: "publisher_restart",
  disconnects: "disconnect",
};

export type IndexerMetrics = { collect(): void; onAnswer(path: string, status: number, seconds: number): void };

export function openIndexerMetrics(metrics: Metrics, index: NativeIndex, registry: Registry, snapshots: Snapshots, pending: PendingBudget): IndexerMetrics {
  const requests = metrics.seconds("svc_indexer_request_seconds", "Time from a request's head to its answer", ["path", "code"]);
  const events = metrics.counter("svc_indexer_events_total", "What became of events and their blocks", ["outcome"]);
  const batches = metrics.counter("svc_indexer_batches_total", "What became of batches", ["outcome"]);
  const asked = metrics.counter("svc_indexer_query_blocks_total", "Complete blocks in queries", []);
  const matched = metrics.counter("svc_indexer_matched_blocks_total", "Longest matches, summed over instances", []);
  const evicted = metrics.counter("svc_indexer_evicted_blocks_total", "Blocks that went for the memory budget", []);
  const bytes = metrics.gauge("svc_indexer_memory_bytes", "Memory of the index by part", ["part"]);
  const budget = metrics.gauge("svc_indexer_memory_budget_bytes", "What the index never exceeds");
  const blocks = metrics.gauge("svc_indexer_blocks", "Unique blocks");
  const registrations = metrics.gauge("svc_indexer_registrations", "Publishers registered");
  const gaps = metrics.gauge("svc_indexer_streams_with_gap", "Publishers of which events were lost");
  const uncertain = metrics.gauge("svc_indexer_streams_uncertain", "Publishers with blocks that lost events may have affected");
  const disconnected = metrics.gauge("svc_indexer_streams_disconnected", "Publishers that are not connected");
  const lag = metrics.gauge("svc_indexer_lag_seconds", "Largest time from a publisher's clock to our taking its last batch in");
  const snapshotSeconds = metrics.gauge("svc_indexer_snapshot_seconds", "Duration of the last snapshot");
  const snapshotBytes = metrics.gauge("svc_indexer_snapshot_bytes", "Size of the last snapshot");

  // Counters only grow: what a subscription counted stays when the subscription ends.
  const known = new WeakMap<Counts, Counts>();
  // Timers by path and status: the lookup of labels costs more than counting.
  const timers = new Map<string, ReturnType<typeof requests.labels>>();
  const totals = { asked: 0, matched: 0, evicted: 0 };
  return {
    onAnswer(path, status, seconds) {
      const labels = `${path} ${status}`;
      let timer = timers.get(labels);
      if (timer === undefined) timers.set(labels, (timer = requests.labels(path, String(status))));
      timer.observe(seconds);
    },
    collect() {
      let withGap = 0;
      let withUncertain = 0;
      let away = 0;
      let mostLagMs = 0;
      for (const subscription of registry.subscriptions.values()) {
        const { counts } = subscription;
        const before = known.get(counts) ?? new Counts();
        outcomes.forEach((outcome, i) => {
          const grown = (counts.events[i] ?? 0) - (before.events[i] ?? 0);
          if (grown > 0) events.inc({ outcome }, grown);
          before.events[i] = counts.events[i] ?? 0;
        });
        for (const field of batchFields) {
          const grown = counts[field] - before[field];
          if (grown > 0) batches.inc({ outcome: batchLabels[field] }, grown);
          before[field] = counts[field];
        }
        known.set(counts, before);
        const { gap, connected, lag_ms, uncertain: isUncertain } = subscription.freshness();
        if (gap) withGap++;
        if (isUncertain) withUncertain++;
        if (!connected) away++;
        mostLagMs = Math.max(mostLagMs, lag_ms ?? 0);
      }
      const current = metricsOf(index);
      asked.inc(current.askedBlocks - totals.asked);
      matched.inc(current.matchedBlocks - totals.matched);
      evicted.inc(current.evictedBlocks - totals.evicted);
      Object.assign(totals, { asked: current.askedBlocks, matched: current.matchedBlocks, evicted: current.evictedBlocks });
      bytes.set({ part: "index" }, current.indexBytes);
      bytes.set({ part: "engine_names" }, current.nameBytes);
      bytes.set({ part: "other" }, current.bytes - current.indexBytes - current.nameBytes);
      bytes.set({ part: "waiting" }, pending.bytes);
      budget.set(current.budgetBytes + pending.limitBytes);
      blocks.set(current.blocks);
      registrations.set(registry.subscriptions.size);
      gaps.set(withGap);
      uncertain.set(withUncertain);
      disconnected.set(away);
      lag.set(mostLagMs / 1000);
      snapshotSeconds.set(snapshots.lastSeconds);
      snapshotBytes.set(snapshots.lastBytes);
    },
  };
}
