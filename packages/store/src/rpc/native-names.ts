// The names that the native part has as well, in the same order: a number that crosses the seam is an index into one of these lists.
import { countedOperations } from "./native-operations.ts";
import { operations } from "./operations.ts";

const bucketNames = Array.from({ length: 11 }, (_, at) => `below${2 << at}us`);

/** Why a key is missing. */
export const missReasons = [
  "unknown",
  "never_stored",
  "removed",
  "evicted",
  "expired",
  "holder_lost",
  "tenant",
  "quota",
  "fingerprint",
  "unfinished",
  "checksum",
  "holder_away",
  "stored",
] as const;

/** The addon says its own lists when it is loaded, and a difference is refused. */
export const names = {
  /** The values after "logFull" are available once the log is read. */
  metrics: [
    "connections",
    "accepted",
    "refused",
    "malformed",
    "bufferedBytes",
    "logFull",
    "objects",
    "usedBytes",
    "capacityBytes",
    "unfinished",
    "evictedObjects",
    "evictedBytes",
    "evictions",
    "allocationFailures",
    "discarded",
    "clientsLost",
    "replicasLost",
    "refusedLogFull",
    "lsn",
    "durableLsn",
    "logBytes",
    "snapshots",
    "eventBatches",
    "events",
    "eventsDropped",
    "keysUnparsed",
    "disks",
    "diskUsedBytes",
    "diskCapacityBytes",
    "offloadsWaiting",
    "offloadedObjects",
    "offloadedBytes",
    "offloadsFailed",
    "offloadsSkipped",
    "promotedObjects",
    "promotionsFailed",
    "damagedFiles",
    "restoredObjects",
    "folderFiles",
    "folderUsedBytes",
    "folderQuotaBytes",
    "folderDropped",
    "filedObjects",
    "filesFailed",
    "filesEvicted",
    "filesRefused",
    "nofUsedBytes",
    "nofCapacityBytes",
    "nofEvictedObjects",
    "nofEvictedBytes",
    "nofDamaged",
    ...missReasons.map((reason) => `missed:${reason}` as const),
  ],
  /** With the hash of its arguments' types, from which both sides derive how they are encoded. */
  operations: countedOperations.map((name) => `${name}/${name in operations ? operations[name as keyof typeof operations].argsHash : 0}`),
  /** A row of an operation's metrics: its counters, then its histogram. */
  operationMetrics: ["requests", "items", "failedItems", "nanoseconds", ...bucketNames, "slower"],
  events: [
    "request",
    "unknown",
    "malformed",
    "probe",
    "client",
    "recovered",
    "durable",
    "trouble",
    "batches",
    "http",
    "denied",
    "standing",
    "peer",
    "caughtUp",
    "peerLost",
    "followed",
    "followLost",
    "handover",
  ],
  /** The arguments of `OnEvent`. */
  event: ["kind", "id", "seq", "functionID", "body"],
  strategies: ["random", "free_ratio_first", "local_first"],
  rights: ["none", "tenant", "all"],
  missReasons,
  /** The words of a range of memory in a BigUint64Array. */
  range: ["localAddress", "remoteAddress", "length"],
} as const;

/** Returns the first difference as a sentence; undefined if there is none. */
export function differenceOf(theirs: Readonly<Record<string, readonly string[] | undefined>>): string | undefined {
  for (const [list, ours] of Object.entries<readonly string[]>(names)) {
    const native = theirs[list];
    if (native === undefined) return `it does not say its ${list}`;
    for (let at = 0; at < Math.max(ours.length, native.length); at++)
      if (native[at] !== ours[at]) return `entry ${at + 1} of ${list} is ${native[at] ?? "missing"} there and ${ours[at] ?? "missing"} in TypeScript`;
  }
  return undefined;
}
