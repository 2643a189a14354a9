// Metrics of transfers: bytes and chunks by direction, durations, failures, and pending exports.
import type { Metrics } from "@svc/kit/metrics.ts";

export type TransferMetrics = {
  readonly count: (direction: "sent" | "kept" | "fetched" | "peer", bytes: number) => void;
  /** Measures the duration of `work` and counts its failures. */
  readonly timed: <T>(verb: "export" | "import" | "collect", work: () => Promise<T>) => Promise<T>;
};

export function openTransferMetrics(metrics: Metrics, waiting: () => number): TransferMetrics {
  const bytes = metrics.counter("svc_node_snapshot_transfer_bytes_total", "Bytes of chunks: sent, kept (there already), fetched, or from a peer", [
    "direction",
  ]);
  const chunks = metrics.counter("svc_node_snapshot_transfer_chunks_total", "Chunks: sent, kept (there already), fetched, or from a peer", ["direction"]);
  const seconds = metrics.seconds("svc_node_snapshot_transfer_seconds", "Time of a whole export, import or collection of chunks", ["verb"]);
  const failed = metrics.counter("svc_node_snapshot_transfer_failed_total", "Exports, imports and collections that failed", ["verb"]);
  metrics.gauge("svc_node_exports_waiting", "Paused sandboxes, snapshots and templates that are not in object storage yet", [], (gauge) =>
    gauge.set(waiting()),
  );
  return {
    count(direction, length) {
      bytes.inc({ direction }, length);
      chunks.inc({ direction });
    },
    async timed(verb, work) {
      const begin = performance.now();
      try {
        return await work();
      } catch (error) {
        failed.inc({ verb });
        throw error;
      } finally {
        seconds.observe({ verb }, (performance.now() - begin) / 1000);
      }
    },
  };
}
