// The master's metrics: its contents, events, and the requests, failures and seconds of each operation.
import { readdirSync } from "node:fs";
import type { Metrics } from "@svc/kit/metrics.ts";
import type { Ha } from "../ha/ha.ts";
import { missReasons } from "../rpc/native-names.ts";
import { BUCKETS, type CoreMetrics, coreMetrics, type NativeMaster, operationMetrics } from "./native.ts";

const gauges: readonly (readonly [`svc_store_${string}`, keyof CoreMetrics, string])[] = [
  ["svc_store_keys", "objects", "Objects"],
  ["svc_store_used_bytes", "usedBytes", "Bytes allocated in segments of memory"],
  ["svc_store_capacity_bytes", "capacityBytes", "Bytes of all segments of memory"],
  ["svc_store_unfinished_puts", "unfinished", "Puts begun and not ended"],
  ["svc_store_rpc_connections", "connections", "RPC connections"],
  ["svc_store_rpc_buffered_bytes", "bufferedBytes", "Bytes buffered for RPC connections"],
  ["svc_store_log_full", "logFull", "1 while the log has no room and changes are refused"],
  ["svc_store_log_bytes", "logBytes", "Bytes of log since the last snapshot"],
  ["svc_store_disks", "disks", "Disks that clients have mounted"],
  ["svc_store_disk_used_bytes", "diskUsedBytes", "Bytes of objects on the disks of clients"],
  ["svc_store_disk_capacity_bytes", "diskCapacityBytes", "Bytes that the disks of clients may hold"],
  ["svc_store_folder_files", "folderFiles", "Files of objects in the shared folder"],
  ["svc_store_folder_used_bytes", "folderUsedBytes", "Bytes of objects in the shared folder"],
  ["svc_store_folder_quota_bytes", "folderQuotaBytes", "Bytes that objects may take in the shared folder; 0 while its file system does not answer"],
  ["svc_store_folder_dropped_files", "folderDropped", "Files in the shared folder that no object has any more and that are not removed yet"],
  ["svc_store_nof_used_bytes", "nofUsedBytes", "Bytes allocated in NOF segments"],
  ["svc_store_nof_capacity_bytes", "nofCapacityBytes", "Bytes of all NOF segments"],
  ["svc_store_offloads_waiting", "offloadsWaiting", "Objects that wait to be stored on a disk"],
];
const counters: readonly (readonly [`svc_store_${string}_total`, keyof CoreMetrics, string])[] = [
  ["svc_store_rpc_accepted_total", "accepted", "RPC connections accepted"],
  ["svc_store_rpc_refused_total", "refused", "RPC connections refused because there were too many"],
  ["svc_store_rpc_malformed_total", "malformed", "RPC connections closed for what they sent"],
  ["svc_store_evicted_keys_total", "evictedObjects", "Objects evicted"],
  ["svc_store_evicted_bytes_total", "evictedBytes", "Bytes evicted"],
  ["svc_store_evictions_total", "evictions", "Runs of eviction"],
  ["svc_store_allocation_failures_total", "allocationFailures", "Puts for which no capacity was found"],
  ["svc_store_discarded_puts_total", "discarded", "Puts given up because they did not end"],
  ["svc_store_lost_clients_total", "clientsLost", "Clients that stopped pinging"],
  ["svc_store_lost_keys_total", "replicasLost", "Objects lost with their last holder"],
  ["svc_store_restored_keys_total", "restoredObjects", "Replicas that holders restored after the master had lost its log"],
  ["svc_store_refused_log_full_total", "refusedLogFull", "Changes refused because the log was full"],
  ["svc_store_offloaded_keys_total", "offloadedObjects", "Objects stored on disks"],
  ["svc_store_offloaded_bytes_total", "offloadedBytes", "Bytes stored on disks"],
  ["svc_store_offload_failures_total", "offloadsFailed", "Objects that a disk did not take"],
  ["svc_store_offloads_skipped_total", "offloadsSkipped", "Objects that found the queue of their disk full; they are stored later if they are still there"],
  ["svc_store_promoted_keys_total", "promotedObjects", "Objects promoted from disks to memory"],
  ["svc_store_promotion_failures_total", "promotionsFailed", "Objects whose promotion to memory failed"],
  ["svc_store_damaged_files_total", "damagedFiles", "Files whose bytes had another checksum than was stored; they are gone"],
  ["svc_store_folder_stored_keys_total", "filedObjects", "Objects stored in the shared folder"],
  ["svc_store_folder_failures_total", "filesFailed", "Files of the shared folder that their writers gave up, or did not end"],
  ["svc_store_folder_evicted_keys_total", "filesEvicted", "Objects whose file made room in the shared folder"],
  ["svc_store_folder_refused_total", "filesRefused", "Objects for which the shared folder had no room"],
  ["svc_store_nof_evicted_keys_total", "nofEvictedObjects", "Objects evicted from NOF segments"],
  ["svc_store_nof_evicted_bytes_total", "nofEvictedBytes", "Bytes evicted from NOF segments"],
  ["svc_store_nof_damaged_replicas_total", "nofDamaged", "Replicas in NOF segments whose bytes had another checksum than was stored; they are gone"],
  ["svc_store_log_records_total", "lsn", "Records in the log, since its beginning"],
  ["svc_store_snapshots_total", "snapshots", "Snapshots taken"],
  ["svc_store_kv_event_batches_total", "eventBatches", "Batches of KV events published"],
  ["svc_store_kv_events_total", "events", "KV events published"],
  ["svc_store_kv_events_dropped_total", "eventsDropped", "KV events dropped because too many waited; their batch numbers are missing"],
  ["svc_store_kv_events_unparsed_keys_total", "keysUnparsed", "KV events of keys that are not a hash in digits"],
];
const label = (name: string) => name.replace(/(?<!^)([A-Z])/g, "_$1").toLowerCase();

/** Returns a function that renders all metrics; the core counts its histograms itself, so they are rendered here. */
export function openMasterMetrics(metrics: Metrics, native: NativeMaster, folder: string, ha: () => Ha | undefined): () => Promise<string> {
  let core: CoreMetrics = coreMetrics(native);
  for (const [name, key, help] of gauges) metrics.gauge(name, help, [], (gauge) => gauge.set(core[key]));
  const gaugesOfHa = () => ha()?.gauges() ?? { isLeader: 1, epoch: 0, inSync: 0, lag: 0, resumes: 0, wholes: 0 };
  metrics.gauge("svc_store_leader", "1 while this master leads, or is the only one", [], (gauge) => gauge.set(gaugesOfHa().isLeader));
  metrics.gauge("svc_store_epoch", "Number of the lead, one more with each leader; 0 of a master alone", [], (gauge) => gauge.set(gaugesOfHa().epoch));
  metrics.gauge("svc_store_standbys_in_sync", "Standbys that have all that is acknowledged, as their leader counts them", [], (gauge) =>
    gauge.set(gaugesOfHa().inSync),
  );
  metrics.gauge("svc_store_standby_lag_records", "Records that the slowest standby has not kept yet, as its leader counts them", [], (gauge) =>
    gauge.set(gaugesOfHa().lag),
  );
  metrics.gauge("svc_store_log_quarantined_files", "Files of the log that are damaged and kept as NAME.damaged until somebody deletes them", [], (gauge) =>
    gauge.set(quarantined(folder)),
  );
  const joins = [
    ["svc_store_standby_resumes_total", "resumes", "Standbys that went on from what they had"],
    ["svc_store_standby_whole_states_total", "wholes", "Standbys that took in the whole state"],
  ] as const;
  const joined = joins.map(([name, key, help]) => ({ counter: metrics.counter(name, help), key }));
  const misses = metrics.counter(
    "svc_store_misses_total",
    "Keys that clients looked up and did not find, by why: as the master remembers its newest removals; unknown if it no longer does",
    ["reason"],
  );
  const counted = counters.map(([name, key, help]) => ({ counter: metrics.counter(name, help), key }));
  return async () => {
    core = coreMetrics(native);
    const ofHa = gaugesOfHa();
    for (const { counter, key } of joined) {
      counter.reset();
      counter.inc(ofHa[key]);
    }
    for (const { counter, key } of counted) {
      counter.reset();
      counter.inc(core[key]);
    }
    misses.reset();
    for (const reason of missReasons) if (reason !== "stored") misses.inc({ reason }, core[`missed:${reason}`]);
    return `${await metrics.text()}\n${operationText(native)}`;
  };
}

function quarantined(folder: string): number {
  try {
    return readdirSync(folder).filter((name) => name.endsWith(".damaged")).length;
  } catch {
    return 0;
  }
}

function operationText(native: NativeMaster): string {
  const rows = operationMetrics(native);
  const lines = ["# HELP svc_store_rpc_seconds Time that an RPC operation took in the master", "# TYPE svc_store_rpc_seconds histogram"];
  for (const { name, requests, seconds, buckets } of rows) {
    const operation = label(name);
    let below = 0;
    for (let index = 0; index < BUCKETS - 1; index++) {
      below += buckets[index] ?? 0;
      lines.push(`svc_store_rpc_seconds_bucket{operation="${operation}",le="${2 ** (index + 1) / 1e6}"} ${below}`);
    }
    lines.push(`svc_store_rpc_seconds_bucket{operation="${operation}",le="+Inf"} ${requests}`);
    lines.push(`svc_store_rpc_seconds_sum{operation="${operation}"} ${seconds}`, `svc_store_rpc_seconds_count{operation="${operation}"} ${requests}`);
  }
  lines.push("# HELP svc_store_rpc_items_total Objects that RPC operations were about", "# TYPE svc_store_rpc_items_total counter");
  for (const { name, items } of rows) lines.push(`svc_store_rpc_items_total{operation="${label(name)}"} ${items}`);
  lines.push("# HELP svc_store_rpc_failed_items_total Of those, the ones that got an error code", "# TYPE svc_store_rpc_failed_items_total counter");
  for (const { name, failedItems } of rows) lines.push(`svc_store_rpc_failed_items_total{operation="${label(name)}"} ${failedItems}`);
  return `${lines.join("\n")}\n`;
}
