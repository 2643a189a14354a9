// The durable truth about this node's sandboxes: one SQLite file, one row each, written before effects.
import { inTransaction, openExclusive } from "@svc/kit/database.ts";
import type { DeathReason } from "../runtime/runtime.ts";
import { openSnapshots, type Snapshots } from "./snapshots.ts";
import type { SandboxRecord } from "./state.ts";
import { upgradeRecords } from "./upgrade-records.ts";

/** For an hour after its end a sandbox's reason can be asked for. */
export const ENDED_KEPT_MS = 3_600_000;
/** As long as a client may repeat a create under the same Idempotency-Key. */
export const IDEMPOTENCY_KEPT_MS = 24 * 3_600_000;
const MAX_ENDED_ROWS = 100_000;

export type Ended = { readonly sandboxID: string; readonly reason: DeathReason; readonly endedAtWallMs: number };
/** `answer`: what the first create answered, as JSON without its tokens, which are derived anew. */
export type IdempotentCreate = { readonly key: string; readonly bodyHash: string; readonly answer: string };

export interface Records {
  all(): SandboxRecord[];
  put(record: SandboxRecord): void;
  /** A claim and the idempotency key it answers, in one transaction. */
  putClaimed(record: SandboxRecord, idempotent: IdempotentCreate | undefined, nowWallMs: number): void;
  /** A record whose end is decided, and the reason, which outlives the record. */
  putEnding(record: SandboxRecord, ended: Ended): void;
  remove(sandboxID: string): void;
  ended(sandboxID: string): Ended | undefined;
  idempotent(key: string): IdempotentCreate | undefined;
  readonly snapshots: Snapshots;
  /** Drops what is older than its time. */
  prune(nowWallMs: number): void;
  close(): void;
}

/**
 * Opens (or creates) the records. The file is held exclusively: one node per home.
 * @throws HOST_UNSUITABLE when another node holds it, or the file is damaged.
 */
export function openRecords(path: string): Records {
  const db = openExclusive(path);
  db.exec(`
    CREATE TABLE IF NOT EXISTS sandboxes (sandbox_id TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS ended (sandbox_id TEXT PRIMARY KEY, reason TEXT NOT NULL, ended_at INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS idempotent (key TEXT PRIMARY KEY, body_hash TEXT NOT NULL, answer TEXT NOT NULL, created_at INTEGER NOT NULL) STRICT;
    CREATE INDEX IF NOT EXISTS ended_at ON ended (ended_at);
  `);
  upgradeRecords(db);
  const snapshots = openSnapshots(db);
  const put = db.prepare("INSERT INTO sandboxes VALUES (?, ?) ON CONFLICT (sandbox_id) DO UPDATE SET record = excluded.record");
  const remove = db.prepare("DELETE FROM sandboxes WHERE sandbox_id = ?");
  const all = db.prepare("SELECT record FROM sandboxes");
  const putEnded = db.prepare("INSERT OR REPLACE INTO ended VALUES (?, ?, ?)");
  const getEnded = db.prepare("SELECT reason, ended_at FROM ended WHERE sandbox_id = ?");
  const putIdempotent = db.prepare("INSERT OR REPLACE INTO idempotent VALUES (?, ?, ?, ?)");
  const getIdempotent = db.prepare("SELECT body_hash, answer FROM idempotent WHERE key = ?");

  return {
    all: () => all.all().map((row) => JSON.parse(row["record"] as string) as SandboxRecord),
    put: (record) => void put.run(record.sandboxID, JSON.stringify(record)),
    putClaimed(record, idempotent, nowWallMs) {
      inTransaction(db, () => {
        put.run(record.sandboxID, JSON.stringify(record));
        if (idempotent !== undefined) putIdempotent.run(idempotent.key, idempotent.bodyHash, idempotent.answer, nowWallMs);
      });
    },
    putEnding(record, ended) {
      inTransaction(db, () => {
        put.run(record.sandboxID, JSON.stringify(record));
        putEnded.run(ended.sandboxID, ended.reason, ended.endedAtWallMs);
      });
    },
    remove: (sandboxID) => void remove.run(sandboxID),
    ended(sandboxID) {
      const row = getEnded.get(sandboxID);
      return row === undefined ? undefined : { sandboxID, reason: row["reason"] as DeathReason, endedAtWallMs: row["ended_at"] as number };
    },
    idempotent(key) {
      const row = getIdempotent.get(key);
      return row === undefined ? undefined : { key, bodyHash: row["body_hash"] as string, answer: row["answer"] as string };
    },
    snapshots,
    prune(nowWallMs) {
      db.prepare("DELETE FROM ended WHERE ended_at < ? OR sandbox_id IN (SELECT sandbox_id FROM ended ORDER BY ended_at DESC LIMIT -1 OFFSET ?)").run(
        nowWallMs - ENDED_KEPT_MS,
        MAX_ENDED_ROWS,
      );
      db.prepare("DELETE FROM idempotent WHERE created_at < ?").run(nowWallMs - IDEMPOTENCY_KEPT_MS);
    },
    close: () => db.close(),
  };
}
