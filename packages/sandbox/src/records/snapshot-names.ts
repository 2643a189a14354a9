// Records of snapshot names: given or freed here, or reported by gateways from other nodes. The latest record of a name wins (I57).
import { isLater, type NameRecord } from "@svc/contract/cluster.ts";
import type { Store } from "@svc/kit/database.ts";

/** Records with `nodeID` "" are this node's. */
export interface SnapshotNames {
  get(name: string): NameRecord | undefined;
  all(): Iterable<NameRecord>;
  /** Returns the record that gives the name to a snapshot here; later than all known records of it, even if this machine's clock is behind. */
  given(name: string, snapshotID: string, atMs: number): NameRecord;
  /** Returns the record that frees the name of a deleted snapshot; undefined if it no longer has the name. */
  freed(name: string, snapshotID: string): NameRecord | undefined;
  /** Returns the records that are later than the known ones. */
  news(records: readonly NameRecord[]): NameRecord[];
  /** Writes records within the caller's transaction. */
  write(records: readonly NameRecord[]): void;
  /** Publishes records after the commit. */
  note(records: readonly NameRecord[]): void;
  watch(onChange: (records: readonly NameRecord[]) => void): () => void;
  /** Forgets the names that were freed first, above a maximum. */
  prune(): void;
}

const MAX_ROWS = 100_000;

/** Part of the schema in records.ts. A row outlives its snapshot, so that an older record on another node does not bring the name back. */
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
    news: (records) => records.filter((each) => isLater(each, known.get(each.name))),
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
