// The durable records of this node's sandboxes: one SQLite file, one row each, written before effects.
import { dirname } from "node:path";
import { openStore, type Schema, type StoreOptions } from "@svc/kit/database.ts";
import type { DeathReason } from "../runtime/runtime.ts";
import { type CreateKeys, createKeyTables, type IdempotentCreate, openCreateKeys } from "./create-keys.ts";
import type { Quarantine } from "./quarantine.ts";
import { readRecord } from "./record-shape.ts";
import { openSnapshots, type Snapshots, snapshotTables } from "./snapshots.ts";
import type { SandboxRecord } from "./state.ts";

/** A sandbox's reason is available for an hour after its end. */
export const ENDED_KEPT_MS = 3_600_000;
const MAX_ENDED_ROWS = 100_000;

export const RECORDS_VERSION = 4;

const schema: Schema = {
  version: RECORDS_VERSION,
  oldest: RECORDS_VERSION,
  tables: `
    CREATE TABLE IF NOT EXISTS sandboxes (sandbox_id TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS ended (sandbox_id TEXT PRIMARY KEY, reason TEXT NOT NULL, ended_at INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS ended_tenants (sandbox_id TEXT PRIMARY KEY, tenant TEXT NOT NULL) STRICT;
    CREATE INDEX IF NOT EXISTS ended_at ON ended (ended_at);
    ${createKeyTables}
    ${snapshotTables}
  `,
};

export type Ended = { readonly sandboxID: string; readonly reason: DeathReason; readonly endedAtWallMs: number; readonly tenant?: string | undefined };

export interface Records {
  /** The records as of when the file was opened, without quarantined ones. */
  all(): SandboxRecord[];
  /** @throws DISK_FULL, as all following methods; `putBack`, `putEnding` and `remove` only once the disk reserve is used up as well. */
  put(record: SandboxRecord): void;
  /** As `put`, for a return to the previous state; uses the reserve when the disk is full. */
  putBack(record: SandboxRecord): void;
  /** Writes a claim and its idempotency key in one transaction. */
  putClaimed(record: SandboxRecord, idempotent: IdempotentCreate | undefined, nowWallMs: number): void;
  /** Writes a record whose end is decided, and the reason, which outlives the record; uses the reserve when the disk is full. */
  putEnding(record: SandboxRecord, ended: Ended): void;
  remove(sandboxID: string): void;
  ended(sandboxID: string): Ended | undefined;
  readonly keys: CreateKeys;
  readonly snapshots: Snapshots;
  /** Removes expired rows. */
  prune(nowWallMs: number): void;
  close(): void;
}

export type RecordsOptions = Omit<StoreOptions, "schema"> & { readonly quarantine: Pick<Quarantine, "addUnreadable"> };

const ADVICE = "bring it back from a backup; without the file the node starts, and knows nothing of the sandboxes and snapshots that it named";

/**
 * Opens (or creates) the records. The file is locked exclusively: one node per home. An unreadable row is quarantined.
 * @throws HOST_UNSUITABLE when another node has it open, the file is damaged, or a newer version of svc wrote it.
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
  const putEndedTenant = db.prepare("INSERT OR REPLACE INTO ended_tenants VALUES (?, ?)");
  const getEnded = db.prepare("SELECT reason, ended_at, tenant FROM ended LEFT JOIN ended_tenants USING (sandbox_id) WHERE sandbox_id = ?");
  const pruneEndedTenants = db.prepare("DELETE FROM ended_tenants WHERE sandbox_id NOT IN (SELECT sandbox_id FROM ended)");
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
        if (ended.tenant !== undefined) putEndedTenant.run(ended.sandboxID, ended.tenant);
      });
    },
    remove: (sandboxID) => store.settle(() => void remove.run(sandboxID)),
    ended(sandboxID) {
      const row = getEnded.get(sandboxID);
      if (row === undefined) return undefined;
      const tenant = (row["tenant"] as string | null) ?? undefined;
      return { sandboxID, reason: row["reason"] as DeathReason, endedAtWallMs: row["ended_at"] as number, ...(tenant === undefined ? {} : { tenant }) };
    },
    keys,
    snapshots,
    prune(nowWallMs) {
      store.settle(() => {
        pruneEnded.run(nowWallMs - ENDED_KEPT_MS, MAX_ENDED_ROWS);
        pruneEndedTenants.run();
        keys.prune(nowWallMs);
        snapshots.prune();
      });
    },
    close: store.close,
  };
}
