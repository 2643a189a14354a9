// Idempotency keys as rows: the sandbox created under each, the grant of each, and since when this node grants keys.
import type { Store } from "@svc/kit/database.ts";
import { z } from "zod";
import type { KeyGrant } from "./key-grants.ts";

/** The time in which a client may repeat a create under the same Idempotency-Key. */
export const IDEMPOTENCY_KEPT_MS = 24 * 3_600_000;

/** `answer`: the first create's answer as JSON, without its tokens, which are derived each time. */
export type IdempotentCreate = { readonly key: string; readonly bodyHash: string; readonly answer: string };

export interface CreateKeys {
  /** Inserts the row within the transaction of the sandbox's record. */
  put(create: IdempotentCreate, nowWallMs: number): void;
  created(key: string): IdempotentCreate | undefined;
  grant(key: string): KeyGrant | undefined;
  /** @throws DISK_FULL. */
  putGrant(key: string, grant: KeyGrant, nowWallMs: number): void;
  /** Returns the wall time when this home first granted keys in this deployment, or last forgot them. */
  since(deploymentID: string, nowWallMs: number): number;
  /** Forgets all keys, after this node was declared dead: other nodes may have created sandboxes under them since. */
  forget(): void;
  prune(nowWallMs: number): void;
}

/** Part of the schema in records.ts. */
export const createKeyTables = `
    CREATE TABLE IF NOT EXISTS idempotent (key TEXT PRIMARY KEY, body_hash TEXT NOT NULL, answer TEXT NOT NULL, created_at INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS key_turns (key TEXT PRIMARY KEY, turn TEXT NOT NULL, changed_at INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS keys_since (deployment TEXT PRIMARY KEY, since INTEGER NOT NULL) STRICT;
    CREATE INDEX IF NOT EXISTS key_turns_at ON key_turns (changed_at);
`;

const keyGrant = z.object({ registrar: z.string(), node: z.string().optional(), turn: z.number(), declined: z.number() });

export function openCreateKeys(store: Store): CreateKeys {
  const { db } = store;
  const put = db.prepare("INSERT OR REPLACE INTO idempotent VALUES (?, ?, ?, ?)");
  const get = db.prepare("SELECT body_hash, answer FROM idempotent WHERE key = ?");
  const putGrant = db.prepare("INSERT OR REPLACE INTO key_turns VALUES (?, ?, ?)");
  const getGrant = db.prepare("SELECT turn FROM key_turns WHERE key = ?");
  const getSince = db.prepare("SELECT since FROM keys_since WHERE deployment = ?");
  const putSince = db.prepare("INSERT INTO keys_since VALUES (?, ?)");
  const forget = ["idempotent", "key_turns", "keys_since"].map((table) => db.prepare(`DELETE FROM ${table}`));
  const prune = db.prepare("DELETE FROM idempotent WHERE created_at < ?");
  const pruneGrants = db.prepare("DELETE FROM key_turns WHERE changed_at < ?");

  return {
    put: ({ key, bodyHash, answer }, nowWallMs) => void put.run(key, bodyHash, answer, nowWallMs),
    created(key) {
      const row = get.get(key);
      return row === undefined ? undefined : { key, bodyHash: row["body_hash"] as string, answer: row["answer"] as string };
    },
    grant(key) {
      const row = getGrant.get(key);
      return row === undefined ? undefined : keyGrant.parse(JSON.parse(row["turn"] as string));
    },
    putGrant: (key, grant, nowWallMs) => store.write(() => void putGrant.run(key, JSON.stringify(grant), nowWallMs)),
    since(deploymentID, nowWallMs) {
      const row = getSince.get(deploymentID);
      if (row !== undefined) return row["since"] as number;
      store.settle(() => void putSince.run(deploymentID, nowWallMs));
      return nowWallMs;
    },
    forget: () => store.settle(() => forget.forEach((each) => void each.run())),
    prune(nowWallMs) {
      prune.run(nowWallMs - IDEMPOTENCY_KEPT_MS);
      // Grants are kept longer than the creates under them, so that a grant's number is never given out twice.
      pruneGrants.run(nowWallMs - 2 * IDEMPOTENCY_KEPT_MS);
    },
  };
}
