// Snapshots as rows: what each holds, by which names it is found, and that it outlives the sandbox it was taken of.
import type { DatabaseSync } from "node:sqlite";
import { inTransaction } from "@svc/kit/database.ts";
import type { CaptureKind, Limits, RootImage, RuntimeName } from "../runtime/runtime.ts";

export type Snapshot = {
  readonly snapshotID: string;
  readonly sandboxID: string;
  readonly templateID: string;
  readonly captureID: string;
  readonly kind: CaptureKind;
  readonly runtime: RuntimeName;
  readonly image: RootImage;
  readonly limits: Limits;
  readonly envd: string;
  readonly envdVersion: string;
  readonly user: string;
  readonly workdir: string;
  readonly strictFiles?: boolean | undefined;
  readonly env: Readonly<Record<string, string>>;
  readonly sizeBytes: number;
  readonly createdAtWallMs: number;
};

export type NamedSnapshot = Snapshot & { readonly names: readonly string[] };

export type SnapshotQuery = { readonly sandboxID?: string | undefined; readonly name?: string | undefined };

export interface Snapshots {
  /** Keeps a snapshot; `name` (name:tag) moves to it from the one that bore it. */
  add(snapshot: Snapshot, name: string | undefined): void;
  /** By id, `name:tag`, or `name`, which means name:default. */
  find(asked: string): NamedSnapshot | undefined;
  /** Newest first. */
  list(query: SnapshotQuery): NamedSnapshot[];
  /** Whether any snapshot bears this name, under whatever tag. */
  bears(name: string): boolean;
  remove(snapshotID: string): void;
}

export const DEFAULT_TAG = "default";

export function withTag(name: string): string {
  return name.includes(":") ? name : `${name}:${DEFAULT_TAG}`;
}

export function openSnapshots(db: DatabaseSync): Snapshots {
  db.exec(`
    CREATE TABLE IF NOT EXISTS snapshots (snapshot_id TEXT PRIMARY KEY, sandbox_id TEXT NOT NULL, created_at INTEGER NOT NULL, snapshot TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS snapshot_names (name TEXT PRIMARY KEY, snapshot_id TEXT NOT NULL REFERENCES snapshots) STRICT;
    CREATE INDEX IF NOT EXISTS snapshots_of ON snapshots (sandbox_id);
  `);
  const insert = db.prepare("INSERT INTO snapshots VALUES (?, ?, ?, ?)");
  const name = db.prepare("INSERT INTO snapshot_names VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET snapshot_id = excluded.snapshot_id");
  const byID = db.prepare("SELECT snapshot FROM snapshots WHERE snapshot_id = ?");
  const byName = db.prepare("SELECT snapshot FROM snapshots JOIN snapshot_names USING (snapshot_id) WHERE name = ?");
  const namesOf = db.prepare("SELECT name FROM snapshot_names WHERE snapshot_id = ? ORDER BY name");
  const all = db.prepare("SELECT snapshot FROM snapshots WHERE ?1 IS NULL OR sandbox_id = ?1 ORDER BY created_at DESC, snapshot_id");
  const anyName = db.prepare("SELECT 1 FROM snapshot_names WHERE substr(name, 1, length(?1) + 1) = ?1 || ':' LIMIT 1");

  function named(row: Record<string, unknown> | undefined): NamedSnapshot | undefined {
    if (row === undefined) return undefined;
    const snapshot = JSON.parse(row["snapshot"] as string) as Snapshot;
    return { ...snapshot, names: namesOf.all(snapshot.snapshotID).map((each) => each["name"] as string) };
  }

  return {
    add(snapshot, asked) {
      inTransaction(db, () => {
        insert.run(snapshot.snapshotID, snapshot.sandboxID, snapshot.createdAtWallMs, JSON.stringify(snapshot));
        if (asked !== undefined) name.run(withTag(asked), snapshot.snapshotID);
      });
    },
    find: (asked) => named(byID.get(asked)) ?? named(byName.get(withTag(asked))),
    list({ sandboxID, name: asked }) {
      const found = all.all(sandboxID ?? null).flatMap((row) => named(row) ?? []);
      if (asked === undefined) return found;
      return found.filter(({ names }) => names.some((each) => each === asked || each.slice(0, each.indexOf(":")) === asked));
    },
    bears: (asked) => anyName.get(asked) !== undefined,
    remove(snapshotID) {
      inTransaction(db, () => {
        db.prepare("DELETE FROM snapshot_names WHERE snapshot_id = ?").run(snapshotID);
        db.prepare("DELETE FROM snapshots WHERE snapshot_id = ?").run(snapshotID);
      });
    },
  };
}
