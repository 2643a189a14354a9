// The facts about sandboxes that E2B's events include. They are stored with the events, so that events of an ended sandbox are complete, too.
import type { DatabaseSync } from "node:sqlite";
import type { Facts } from "./e2b-event.ts";

export interface FactsTable {
  /** Called with each event that E2B has, before it is recorded. @throws what SQLite throws on a full disk. */
  put(sandboxID: string, facts: Facts, atMs: number): void;
  /** Returns the facts as they were at a time. */
  of(sandboxID: string, atMs: number): Facts | undefined;
  /** Removes the facts of sandboxes whose events have all expired. */
  prune(beforeMs: number): void;
}

export const factsTable = `
  CREATE TABLE IF NOT EXISTS sandbox_facts (sandbox_id TEXT PRIMARY KEY, at INTEGER NOT NULL, facts TEXT NOT NULL) STRICT;
  CREATE INDEX IF NOT EXISTS sandbox_facts_at ON sandbox_facts (at);
  CREATE INDEX IF NOT EXISTS sandbox_facts_tenant ON sandbox_facts (json_extract(facts, '$.tenant')) WHERE json_extract(facts, '$.tenant') IS NOT NULL;
`;
/** A term for queries of events: those of one tenant's sandboxes. Facts that a version without tenants wrote belong to the deployment. */
export const ofTenant =
  "sandbox_id IN (SELECT sandbox_id FROM sandbox_facts WHERE json_extract(facts, '$.tenant') IS NOT NULL AND json_extract(facts, '$.tenant') = ?)";
const MAX_FACTS = 50_000;
/** E2B's execution id changes with each boot of a sandbox. Only this number of executions is kept; earlier events show the oldest of them. */
const MAX_EXECUTIONS = 32;

type Execution = { readonly id: string; readonly fromMs: number };
type Stored = Omit<Facts, "executionID"> & { readonly executions: readonly Execution[] };

export function openFacts(db: DatabaseSync): FactsTable {
  const put = db.prepare("INSERT INTO sandbox_facts VALUES (?, ?, ?) ON CONFLICT (sandbox_id) DO UPDATE SET at = excluded.at, facts = excluded.facts");
  const get = db.prepare("SELECT facts FROM sandbox_facts WHERE sandbox_id = ?");
  const drop = db.prepare(
    "DELETE FROM sandbox_facts WHERE at < ? OR at <= coalesce((SELECT at FROM sandbox_facts INDEXED BY sandbox_facts_at ORDER BY at DESC LIMIT 1 OFFSET ?), 0)",
  );
  const stored = (sandboxID: string): Stored | undefined => {
    const row = get.get(sandboxID);
    return row === undefined ? undefined : (JSON.parse(row["facts"] as string) as Stored);
  };
  return {
    put(sandboxID, { executionID, ...facts }, atMs) {
      const { executions = [] } = stored(sandboxID) ?? {};
      const next = executions.at(-1)?.id === executionID ? executions : [...executions, { id: executionID, fromMs: atMs }].slice(-MAX_EXECUTIONS);
      put.run(sandboxID, atMs, JSON.stringify({ ...facts, executions: next } satisfies Stored));
    },
    of(sandboxID, atMs) {
      const found = stored(sandboxID);
      if (found === undefined) return undefined;
      const { executions, ...facts } = found;
      return { ...facts, executionID: (executions.findLast(({ fromMs }) => fromMs <= atMs) ?? executions[0])?.id ?? "" };
    },
    prune: (beforeMs) => void drop.run(beforeMs, MAX_FACTS),
  };
}
