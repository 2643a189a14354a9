// What the names of snapshots mean, as this node heard last: given or freed here, or on other nodes, as gateways tell.
import { isLater, type NameRecord } from "@svc/contract/cluster.ts";
import type { Store } from "@svc/kit/database.ts";

/** `nodeID` "": this node. */
export interface SnapshotNames {
  get(name: string): NameRecord | undefined;
  all(): Iterable<NameRecord>;
  /** What is to be written where a snapshot is given the name here: later than all that is known of it, whatever this machine's clock says. */
  given(name: string, snapshotID: string, atMs: number): NameRecord;
  /** The same where the one that bears it is deleted; undefined where it does not bear it any more. */
  freed(name: string, snapshotID: string): NameRecord | undefined;
  /** Those that tell more than is known. */
  news(told: readonly NameRecord[]): NameRecord[];
  /** In a transaction of the caller's. */
  write(records: readonly NameRecord[]): void;
  /** Once it is committed. */
  note(records: readonly NameRecord[]): void;
  watch(onChange: (records: readonly NameRecord[]) => void): () => void;
  /** Forgets those that were freed first, where there are very many. */
  prune(): void;
}

const MAX_ROWS = 100_000;

/** Part of the schema in records.ts. A row outlives the snapshot: an older one elsewhere does not bear the name again. */
export const snapshotNameTables = `
    CREATE TABLE IF NOT EXISTS snapshot_name_records (name TEXT PRIMARY KEY, at_ms INTEGER NOT NULL, snapshot_id TEXT NOT NULL, node_id TEXT NOT NULL) STRICT;
`;

export function openSnapshotNames({ db }: Pick<Store, "db">): SnapshotNames {
  // I57
  const put = db.prepare("INSERT OR REPLACE INTO snapshot_name_records VALUES (?, ?, ?, ?)");
  const remove = db.prepare("DELETE FROM snapshot_name_records WHERE name = ?");
  const known = new Map<string, NameRecord>();
  const watchers = new Set<(records: readonly NameRecord[]) => void>();
  for (const row of db.prepare("SELECT name, at_ms, snapshot_id, node_id FROM snapshot_name_records").iterate()) {
    const name = row["name"] as string;
    known.set(name, { name, atMs: row["at_ms"] as number, snapshotID: row["snapshot_id"] as string, nodeID: row["node_id"] as string });
  }

  return {
    get: (name) => known.get(name),
    all: () => known.values(),
    given: (name, snapshotID, atMs) => ({ name, atMs: Math.max(atMs, (known.get(name)?.atMs ?? 0) + 1), snapshotID, nodeID: "" }),
    freed(name, snapshotID) {
      const record = known.get(name);
      return record?.snapshotID === snapshotID ? { name, atMs: record.atMs + 1, snapshotID: "", nodeID: "" } : undefined;
    },
    news: (told) => told.filter((each) => isLater(each, known.get(each.name))),
    write(records) {
      for (const { name, atMs, snapshotID, nodeID } of records) put.run(name, atMs, snapshotID, nodeID);
    },
    note(records) {
      if (records.length === 0) return;
      for (const record of records) known.set(record.name, record);
      for (const onChange of watchers) onChange(records);
    },
    watch(onChange) {
      watchers.add(onChange);
      return () => watchers.delete(onChange);
    },
    prune() {
      const over = known.size - MAX_ROWS;
      if (over <= 0) return;
      const freed = [...known.values()].filter(({ snapshotID }) => snapshotID === "").sort((a, b) => a.atMs - b.atMs);
      for (const { name } of freed.slice(0, over)) {
        remove.run(name);
        known.delete(name);
      }
    },
  };
}
