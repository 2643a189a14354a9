// What E2B's events show of a sandbox, kept beside the events so that those of an ended sandbox are complete.
import type { DatabaseSync } from "node:sqlite";
import type { Facts } from "./e2b-event.ts";

export interface FactsTable {
  /** Called with each event that E2B has, before it is recorded. @throws what SQLite throws on a full disk. */
  put(sandboxID: string, facts: Facts, atMs: number): void;
  of(sandboxID: string): Facts | undefined;
  /** Removes the facts of sandboxes whose events have all expired. */
  prune(beforeMs: number): void;
}

export const factsTable = `
  CREATE TABLE IF NOT EXISTS sandbox_facts (sandbox_id TEXT PRIMARY KEY, at INTEGER NOT NULL, facts TEXT NOT NULL) STRICT;
  CREATE INDEX IF NOT EXISTS sandbox_facts_at ON sandbox_facts (at);
`;
const MAX_FACTS = 50_000;

export function openFacts(db: DatabaseSync): FactsTable {
  const put = db.prepare("INSERT INTO sandbox_facts VALUES (?, ?, ?) ON CONFLICT (sandbox_id) DO UPDATE SET at = excluded.at, facts = excluded.facts");
  const get = db.prepare("SELECT facts FROM sandbox_facts WHERE sandbox_id = ?");
  const drop = db.prepare(
    "DELETE FROM sandbox_facts WHERE at < ? OR at <= coalesce((SELECT at FROM sandbox_facts INDEXED BY sandbox_facts_at ORDER BY at DESC LIMIT 1 OFFSET ?), 0)",
  );
  return {
    put: (sandboxID, facts, atMs) => void put.run(sandboxID, atMs, JSON.stringify(facts)),
    of(sandboxID) {
      const row = get.get(sandboxID);
      return row === undefined ? undefined : (JSON.parse(row["facts"] as string) as Facts);
    },
    prune: (beforeMs) => void drop.run(beforeMs, MAX_FACTS),
  };
}
