// The build cache: what a step, a fetched image or a preparation left behind, by a key of all that it was made of.
import type { Database } from "./database.ts";

/** `layerID` null: it changed nothing. */
export type Outcome = { readonly layerID: string | null; readonly madeAtMs?: number };

export interface BuildCache {
  find(key: string): Outcome | undefined;
  /** `layerID` undefined: it changed nothing. */
  keep(key: string, layerID: string | undefined): void;
  /** It was used just now; what was used last stays longest. */
  touch(key: string): void;
  /** Those used last before the others. */
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
