// Counts the client's operations for its metrics.
import type { Metrics } from "@svc/kit/metrics.ts";
import type { GetOutcome } from "./get.ts";
import type { PutItem, PutOutcome } from "./put.ts";

const names = {
  stored: ["svc_store_client_stored_total", "Objects that this client stored"],
  existed: ["svc_store_client_existed_total", "Puts of keys that were there already"],
  putFailures: ["svc_store_client_put_failures_total", "Puts that failed"],
  storedBytes: ["svc_store_client_stored_bytes_total", "Bytes of the objects that this client stored"],
  readKnown: ["svc_store_client_reads_known_total", "Reads of places that were known, without asking the master"],
  readAsked: ["svc_store_client_reads_asked_total", "Reads after asking the master"],
  readDisk: ["svc_store_client_reads_disk_total", "Reads from the disk of another client, or of this one"],
  readNof: ["svc_store_client_reads_nof_total", "Reads from NOF segments after asking the master"],
  filed: ["svc_store_client_filed_total", "Objects of which this client stored a file in the shared folder"],
  unfiled: ["svc_store_client_unfiled_total", "Objects that this client stored in memory alone, though there is a shared folder"],
  readShared: ["svc_store_client_reads_shared_total", "Reads of files in the shared folder"],
  readBytes: ["svc_store_client_read_bytes_total", "Bytes of the objects that this client read"],
  misses: ["svc_store_client_misses_total", "Keys that were not there"],
  readFailures: ["svc_store_client_read_failures_total", "Reads that failed"],
  wrongBytes: ["svc_store_client_wrong_checksums_total", "Replicas whose bytes had another checksum: they were not handed out"],
  unreached: ["svc_store_client_unreached_total", "Moves that did not reach their holder"],
} as const;

export type CounterName = keyof typeof names;

export class ClientMetrics {
  readonly values: Record<CounterName, number> = Object.fromEntries(Object.keys(names).map((name) => [name, 0])) as Record<CounterName, number>;

  put(items: readonly PutItem[], outcomes: readonly PutOutcome[]): void {
    outcomes.forEach((outcome, index) => {
      if (outcome === true) this.values.storedBytes += items[index]?.sizeBytes ?? 0;
      this.values[outcome === true ? "stored" : outcome === false ? "existed" : "putFailures"]++;
    });
  }

  got(outcomes: readonly GetOutcome[]): void {
    for (const outcome of outcomes) {
      if (typeof outcome === "number") this.values.readBytes += outcome;
      else if (outcome !== undefined) this.values.readFailures++;
    }
  }

  read(sizeBytes: number, how: "readKnown" | "readAsked"): void {
    this.values[how]++;
    this.values.readBytes += sizeBytes;
  }

  /** Counts a new object. */
  storedOne(sizeBytes: number): void {
    this.values.stored++;
    this.values.storedBytes += sizeBytes;
  }

  /** Returns a function that renders all metrics, including these counters. */
  exposedBy(metrics: Metrics): () => Promise<string> {
    const counters = Object.entries(names).map(([name, [metric, help]]) => ({ counter: metrics.counter(metric, help), name: name as CounterName }));
    return () => {
      for (const { counter, name } of counters) {
        counter.reset();
        counter.inc(this.values[name]);
      }
      return metrics.text();
    };
  }

  count(what: CounterName): void {
    this.values[what]++;
  }
}
