// Snapshots as rows: the checkpoint and the names of each. A snapshot outlives the sandbox it was taken from.

import { isLater, type NameRecord } from "@svc/contract/cluster.ts";
import type { SnapshotInfo } from "@svc/contract/lifecycle.ts";
import { bearsName } from "@svc/contract/list-filter.ts";
import type { Store } from "@svc/kit/database.ts";
import { z } from "zod";
import { type CheckpointKind, type Limits, type RootImage, type RuntimeName, runtimeNames, type VolumeReference } from "../runtime/runtime.ts";
import type { Quarantine } from "./quarantine.ts";
import { openSnapshotNames, type SnapshotNames, snapshotNameTables } from "./snapshot-names.ts";

export type Snapshot = {
  readonly snapshotID: string;
  readonly sandboxID: string;
  readonly templateID: string;
  readonly checkpointID: string;
  readonly kind: CheckpointKind;
  readonly runtime: RuntimeName;
  readonly image: RootImage;
  readonly limits: Limits;
  readonly envd: string;
  readonly envdVersion: string;
  readonly user: string;
  readonly workdir: string;
  readonly strictFiles?: boolean | undefined;
  readonly env: Readonly<Record<string, string>>;
  /** The volumes that the sandbox mounted; their files are not in the snapshot. */
  readonly volumes?: readonly VolumeReference[] | undefined;
  /** The tenant of the sandbox; absent: the deployment itself. */
  readonly tenant?: string | undefined;
  /** The metadata of the sandbox that it was taken from, for retention rules; absent in records of earlier versions, in copies, and if empty. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly sizeBytes: number;
  readonly createdAtWallMs: number;
  /** For a fetched copy: the node that took it, "" if unknown. A copy is found by its id only (I55). */
  readonly originNodeID?: string | undefined;
};

export type NamedSnapshot = Snapshot & { readonly names: readonly string[] };

export type SnapshotQuery = { readonly tenant?: string | undefined; readonly sandboxID?: string | undefined; readonly name?: string | undefined };

export interface Snapshots {
  /** Adds a snapshot; `name` (name:tag) moves to it from the snapshot that had it. */
  add(snapshot: Snapshot, name: string | undefined): void;
  /** Finds a snapshot by id, `name:tag`, or `name`, which means name:default. */
  find(asked: string): NamedSnapshot | undefined;
  /** Returns the id of a snapshot whose record is unreadable, by id or name as `find`. */
  unreadable(asked: string): string | undefined;
  /** Lists snapshots, newest first. */
  list(query: SnapshotQuery): readonly NamedSnapshot[];
  readonly size: number;
  remove(snapshotID: string): void;
  /** True if the snapshot was taken here and removed, as far as this node remembers; nodes that fetched a copy ask. */
  wasRemoved(snapshotID: string): boolean;
  /** The records of snapshot names, here and on other nodes. */
  readonly names: Pick<SnapshotNames, "get" | "all" | "watch">;
  /** Merges other nodes' name records, and removes names that snapshots here lost to them. @throws DISK_FULL. */
  settle(records: readonly NameRecord[]): { readonly changed: number; readonly unnamed: readonly NamedSnapshot[] };
  /** Forgets the oldest removed snapshots above a maximum. */
  prune(): void;
}

const MAX_REMOVED_ROWS = 100_000;

export const DEFAULT_TAG = "default";

export function withTag(name: string): string {
  return name.includes(":") ? name : `${name}:${DEFAULT_TAG}`;
}

/** Part of the schema in records.ts. */
export const snapshotTables = `
    CREATE TABLE IF NOT EXISTS snapshots (snapshot_id TEXT PRIMARY KEY, sandbox_id TEXT NOT NULL, created_at INTEGER NOT NULL, snapshot TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS snapshot_names (name TEXT PRIMARY KEY, snapshot_id TEXT NOT NULL REFERENCES snapshots) STRICT;
    CREATE TABLE IF NOT EXISTS removed_snapshots (position INTEGER PRIMARY KEY AUTOINCREMENT, snapshot_id TEXT NOT NULL UNIQUE) STRICT;
    CREATE INDEX IF NOT EXISTS snapshots_of ON snapshots (sandbox_id);
    CREATE INDEX IF NOT EXISTS snapshot_names_of ON snapshot_names (snapshot_id);
    ${snapshotNameTables}
`;

/** The members that every row must have; the others are taken as written. */
const readable = z.looseObject({
  snapshotID: z.string(),
  checkpointID: z.string(),
  kind: z.enum(["memory", "filesystem"]),
  runtime: z.enum(runtimeNames),
  image: z.looseObject({ rootfs: z.string() }),
  createdAtWallMs: z.number(),
});

/** Keeps all rows in memory, newest first, and reads SQLite only here. An unreadable row is quarantined. */
export function openSnapshots(store: Store, quarantine: Pick<Quarantine, "addUnreadable">): Snapshots {
  const { db } = store;
  const insert = db.prepare("INSERT INTO snapshots VALUES (?, ?, ?, ?)");
  const name = db.prepare("INSERT INTO snapshot_names VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET snapshot_id = excluded.snapshot_id");
  const removeName = db.prepare("DELETE FROM snapshot_names WHERE name = ?");
  const removeNames = db.prepare("DELETE FROM snapshot_names WHERE snapshot_id = ?");
  const removeRow = db.prepare("DELETE FROM snapshots WHERE snapshot_id = ?");
  const noteRemoved = db.prepare("INSERT OR IGNORE INTO removed_snapshots (snapshot_id) VALUES (?)");
  const unnoteRemoved = db.prepare("DELETE FROM removed_snapshots WHERE snapshot_id = ?");
  const getRemoved = db.prepare("SELECT 1 FROM removed_snapshots WHERE snapshot_id = ?");
  const pruneRemoved = db.prepare("DELETE FROM removed_snapshots WHERE position <= (SELECT max(position) FROM removed_snapshots) - ?");

  const byID = new Map<string, NamedSnapshot>();
  /** Maps `name:tag` to a snapshot's id. */
  const bearers = new Map<string, string>();
  const unread = new Set<string>();
  let newestFirst: readonly NamedSnapshot[] | undefined;

  function put(snapshot: NamedSnapshot): void {
    byID.set(snapshot.snapshotID, snapshot);
    newestFirst = undefined;
  }
  function unname(bearer: string | undefined, taken: string): void {
    const known = bearer === undefined ? undefined : byID.get(bearer);
    if (known !== undefined) put({ ...known, names: known.names.filter((each) => each !== taken) });
  }
  function takeFrom(bearer: string | undefined, taken: string): NamedSnapshot[] {
    bearers.delete(taken);
    unname(bearer, taken);
    const lost = bearer === undefined ? undefined : byID.get(bearer);
    return lost === undefined ? [] : [lost];
  }
  function rename(taken: string, snapshotID: string): void {
    unname(bearers.get(taken), taken);
    bearers.set(taken, snapshotID);
    const known = byID.get(snapshotID);
    if (known !== undefined) put({ ...known, names: [...known.names, taken].sort() });
  }
  function all(): readonly NamedSnapshot[] {
    newestFirst ??= [...byID.values()].sort((a, b) => b.createdAtWallMs - a.createdAtWallMs || (a.snapshotID < b.snapshotID ? -1 : 1));
    return newestFirst;
  }

  const named = new Map<string, string[]>();
  for (const row of db.prepare("SELECT name, snapshot_id FROM snapshot_names ORDER BY name").iterate()) {
    const snapshotID = row["snapshot_id"] as string;
    bearers.set(row["name"] as string, snapshotID);
    named.set(snapshotID, [...(named.get(snapshotID) ?? []), row["name"] as string]);
  }
  for (const row of db.prepare("SELECT snapshot_id, snapshot FROM snapshots").iterate()) {
    const snapshotID = row["snapshot_id"] as string;
    const names = named.get(snapshotID) ?? [];
    try {
      put({ ...(readable.parse(JSON.parse(row["snapshot"] as string)) as unknown as Snapshot), names });
    } catch {
      unread.add(snapshotID);
      const alias = names.length === 0 ? "" : ` (its name is ${names.join(", ")})`;
      quarantine.addUnreadable({ kind: "snapshot", name: snapshotID, reason: `its record cannot be read${alias}` });
    }
  }
  const names = openSnapshotNames(store);
  reconcile();

  /** Reconciles the name records with the rows of an earlier version of svc, which knew only this node's names. */
  function reconcile(): void {
    const given: NameRecord[] = [];
    const lost: string[] = [];
    for (const [each, snapshotID] of bearers) {
      const known = names.get(each);
      if (known?.snapshotID === snapshotID) continue;
      const own = { name: each, atMs: byID.get(snapshotID)?.createdAtWallMs ?? 0, snapshotID, nodeID: "" };
      if (isLater(own, known)) given.push(own);
      else lost.push(each);
    }
    if (given.length + lost.length === 0) return;
    store.settle(() => {
      names.write(given);
      for (const each of lost) removeName.run(each);
    });
    names.note(given);
    for (const each of lost) takeFrom(bearers.get(each), each);
  }

  return {
    add(snapshot, asked) {
      const given = asked === undefined ? [] : [names.given(withTag(asked), snapshot.snapshotID, snapshot.createdAtWallMs)];
      store.write(() => {
        names.write(given);
        insert.run(snapshot.snapshotID, snapshot.sandboxID, snapshot.createdAtWallMs, JSON.stringify(snapshot));
        unnoteRemoved.run(snapshot.snapshotID);
        if (asked !== undefined) name.run(withTag(asked), snapshot.snapshotID);
      });
      put({ ...snapshot, names: [] });
      if (asked !== undefined) rename(withTag(asked), snapshot.snapshotID);
      names.note(given);
    },
    names,
    settle(records) {
      const news = names.news(records);
      const lost = news.filter((each) => (bearers.get(each.name) ?? each.snapshotID) !== each.snapshotID);
      if (news.length > 0) {
        store.write(() => {
          names.write(news);
          for (const each of lost) removeName.run(each.name);
        });
      }
      const unnamed = lost.flatMap((each) => takeFrom(bearers.get(each.name), each.name));
      names.note(news);
      return { changed: news.length, unnamed };
    },
    find: (asked) => byID.get(asked) ?? byID.get(bearers.get(withTag(asked)) ?? ""),
    unreadable: (asked) => [asked, bearers.get(withTag(asked)) ?? ""].find((snapshotID) => unread.has(snapshotID)),
    list({ tenant, sandboxID, name: asked }) {
      const seen = tenant === undefined ? all() : all().filter((each) => each.tenant === tenant);
      if (sandboxID === undefined && asked === undefined) return seen;
      return seen.filter((each) => (sandboxID === undefined || each.sandboxID === sandboxID) && (asked === undefined || bearsName(each.names, asked)));
    },
    get size() {
      return byID.size;
    },
    remove(snapshotID) {
      const taken = [...bearers].flatMap(([each, bearer]) => (bearer === snapshotID ? each : []));
      const freed = taken.flatMap((each) => names.freed(each, snapshotID) ?? []);
      store.settle(() => {
        names.write(freed);
        removeNames.run(snapshotID);
        removeRow.run(snapshotID);
        // The node that took a fetched copy may still have it, so only own snapshots are noted as removed.
        if (byID.get(snapshotID)?.originNodeID === undefined) noteRemoved.run(snapshotID);
      });
      for (const each of taken) bearers.delete(each);
      byID.delete(snapshotID);
      unread.delete(snapshotID);
      newestFirst = undefined;
      names.note(freed);
    },
    wasRemoved: (snapshotID) => getRemoved.get(snapshotID) !== undefined,
    prune() {
      pruneRemoved.run(MAX_REMOVED_ROWS);
      names.prune();
    },
  };
}

/** Converts a snapshot for lists. */
export function shownSnapshot(snapshot: NamedSnapshot): SnapshotInfo {
  const { snapshotID, names, sandboxID, templateID, kind, limits, sizeBytes, createdAtWallMs, originNodeID } = snapshot;
  return {
    snapshotID,
    names: [...names],
    sandboxID,
    templateID,
    memory: kind === "memory",
    cpuCount: limits.cpuCount,
    memoryMB: limits.memoryMB,
    diskSizeMB: limits.diskSizeMB,
    sizeBytes,
    createdAt: new Date(createdAtWallMs).toISOString(),
    ...(originNodeID === undefined ? {} : { originNodeID }),
    ...(snapshot.tenant === undefined ? {} : { tenant: snapshot.tenant }),
  };
}
