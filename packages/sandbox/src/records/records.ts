// The durable truth about this node's sandboxes: one SQLite file, one row each, written before effects.
import { dirname } from "node:path";
import { openStore, type Schema, type StoreOptions } from "@svc/kit/database.ts";
import type { DeathReason } from "../runtime/runtime.ts";
import { type CreateKeys, createKeyTables, type IdempotentCreate, openCreateKeys } from "./create-keys.ts";
import type { Quarantine } from "./quarantine.ts";
import { readRecord } from "./record-shape.ts";
import { openSnapshots, type Snapshots, snapshotTables } from "./snapshots.ts";
import type { SandboxRecord } from "./state.ts";

/** For an hour after its end a sandbox's reason can be asked for. */
export const ENDED_KEPT_MS = 3_600_000;
const MAX_ENDED_ROWS = 100_000;

export const RECORDS_VERSION = 4;

const schema: Schema = {
  version: RECORDS_VERSION,
  oldest: RECORDS_VERSION,
  tables: `
    CREATE TABLE IF NOT EXISTS sandboxes (sandbox_id TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS ended (sandbox_id TEXT PRIMARY KEY, reason TEXT NOT NULL, ended_at INTEGER NOT NULL) STRICT;
    CREATE INDEX IF NOT EXISTS ended_at ON ended (ended_at);
    ${createKeyTables}
    ${snapshotTables}
  `,
};

export type Ended = { readonly sandboxID: string; readonly reason: DeathReason; readonly endedAtWallMs: number };

export interface Records {
  /** As they were when the file was opened, but for those quarantined. */
  all(): SandboxRecord[];
  /** @throws DISK_FULL, as all that follow but `remove`s: they use the reserve. */
  put(record: SandboxRecord): void;
  /** As `put`, for a move that puts back what was: on the reserve, where the disk is full. */
  putBack(record: SandboxRecord): void;
  /** A claim and the idempotency key it answers, in one transaction. */
  putClaimed(record: SandboxRecord, idempotent: IdempotentCreate | undefined, nowWallMs: number): void;
  /** A record whose end is decided, and the reason, which outlives the record; on the reserve, where the disk is full. */
  putEnding(record: SandboxRecord, ended: Ended): void;
  remove(sandboxID: string): void;
  ended(sandboxID: string): Ended | undefined;
  readonly keys: CreateKeys;
  readonly snapshots: Snapshots;
  /** Drops what is older than its time. */
  prune(nowWallMs: number): void;
  close(): void;
}

export type RecordsOptions = Omit<StoreOptions, "schema"> & { readonly quarantine: Pick<Quarantine, "addUnreadable"> };

const ADVICE = "bring it back from a backup; without the file the node starts, and knows nothing of the sandboxes and snapshots that it named";

/**
 * Opens (or creates) the records. The file is held exclusively: one node per home. A row that cannot be read is quarantined.
 * @throws HOST_UNSUITABLE when another node holds it, the file is damaged, or a newer version of svc wrote it.
 */
export function openRecords(path: string, { quarantine, ...options }: RecordsOptions): Records {
  const store = openStore(path, { ...options, schema, advice: ADVICE });
  const { db } = store;
  const snapshots = openSnapshots(store, quarantine);
  const keys = openCreateKeys(store);
  const put = db.prepare("INSERT INTO sandboxes VALUES (?, ?) ON CONFLICT (sandbox_id) DO UPDATE SET record = excluded.record");
  const remove = db.prepare("DELETE FROM sandboxes WHERE sandbox_id = ?");
  const found = db
    .prepare("SELECT sandbox_id, record FROM sandboxes")
    .all()
    .flatMap((row) => {
      const sandboxID = row["sandbox_id"] as string;
      try {
        return [readRecord(sandboxID, row["record"] as string, dirname(path))];
      } catch (error) {
        quarantine.addUnreadable({ kind: "sandbox", name: sandboxID, reason: (error as Error).message });
        return [];
      }
    });
  const putEnded = db.prepare("INSERT OR REPLACE INTO ended VALUES (?, ?, ?)");
  const getEnded = db.prepare("SELECT reason, ended_at FROM ended WHERE sandbox_id = ?");
  const pruneEnded = db.prepare(
    "DELETE FROM ended WHERE ended_at < ? OR sandbox_id IN (SELECT sandbox_id FROM ended ORDER BY ended_at DESC LIMIT -1 OFFSET ?)",
  );

  return {
    all: () => found,
    put: (record) => store.write(() => void put.run(record.sandboxID, JSON.stringify(record))),
    putBack: (record) => store.settle(() => void put.run(record.sandboxID, JSON.stringify(record))),
    putClaimed(record, idempotent, nowWallMs) {
      store.write(() => {
        put.run(record.sandboxID, JSON.stringify(record));
        // I4: the claim and its idempotency key are in the file before the client gets its answer.
        if (idempotent !== undefined) keys.put(idempotent, nowWallMs);
      });
    },
    putEnding(record, ended) {
      store.settle(() => {
        put.run(record.sandboxID, JSON.stringify(record));
        putEnded.run(ended.sandboxID, ended.reason, ended.endedAtWallMs);
      });
    },
    remove: (sandboxID) => store.settle(() => void remove.run(sandboxID)),
    ended(sandboxID) {
      const row = getEnded.get(sandboxID);
      return row === undefined ? undefined : { sandboxID, reason: row["reason"] as DeathReason, endedAtWallMs: row["ended_at"] as number };
    },
    keys,
    snapshots,
    prune(nowWallMs) {
      store.settle(() => {
        pruneEnded.run(nowWallMs - ENDED_KEPT_MS, MAX_ENDED_ROWS);
        keys.prune(nowWallMs);
        snapshots.prune();
      });
    },
    close: store.close,
  };
}
