// The build cache: the result of a step, a fetched image or a preparation, under a key derived from all its inputs.
import type { Database } from "./database.ts";

/** `layerID` null means that it changed nothing. */
export type Outcome = { readonly layerID: string | null; readonly madeAtMs?: number };

export interface BuildCache {
  find(key: string): Outcome | undefined;
  /** `layerID` undefined means that it changed nothing. */
  keep(key: string, layerID: string | undefined): void;
  /** Marks the entry as used; a collection removes the least recently used entries first. */
  touch(key: string): void;
  /** Returns the entries, the most recently used first. */
  all(): Iterable<Outcome & { readonly key: string }>;
  drop(key: string): void;
}

export function openBuildCache(db: Database, nowMs: () => number): BuildCache {
  const read = (outcome: unknown) => JSON.parse(outcome as string) as Outcome;
  return {
    find(key) {
      const row = db.get("SELECT outcome FROM steps WHERE key = ?", key);
      return row === undefined ? undefined : read(row["outcome"]);
    },
    keep(key, layerID) {
      const outcome: Outcome = { layerID: layerID ?? null, madeAtMs: nowMs() };
      db.run(
        "INSERT INTO steps VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET outcome = excluded.outcome, used_at = excluded.used_at",
        key,
        JSON.stringify(outcome),
        nowMs(),
      );
    },
    touch: (key) => void db.run("UPDATE steps SET used_at = ? WHERE key = ?", nowMs(), key),
    all: () => db.all("SELECT key, outcome FROM steps ORDER BY used_at DESC").map((row) => ({ key: row["key"] as string, ...read(row["outcome"]) })),
    drop: (key) => void db.remove("DELETE FROM steps WHERE key = ?", key),
  };
}
