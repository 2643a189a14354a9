// Snapshots as clients see them: found by id, name and tag, listed page by page, deleted, and used as templates for new sandboxes.
import type { NameRecord } from "@svc/contract/cluster.ts";
import { fail } from "@svc/contract/failures.ts";
import type { SnapshotInfo } from "@svc/contract/lifecycle.ts";
import { comparePositions, type Position, parsePositionToken, positionToken } from "@svc/contract/list-position.ts";
import type { Report } from "../../observe/open-observe.ts";
import type { Checkpoints } from "../../records/checkpoints.ts";
import type { Quarantine } from "../../records/quarantine.ts";
import { type NamedSnapshot, type SnapshotQuery, type Snapshots, shownSnapshot } from "../../records/snapshots.ts";
import type { Template } from "../../template/template.ts";
import type { Pool } from "../supply/pool.ts";
import type { QuarantineDeletion } from "./delete-quarantined.ts";

export type NamedSnapshotsParts = {
  readonly snapshots: Snapshots;
  readonly checkpoints: Pick<Checkpoints, "remove">;
  readonly quarantine: Pick<Quarantine, "drop" | "find">;
  /** Ends the warm sandboxes of a deleted snapshot. */
  readonly forget: Pool["forget"];
  /** Removes files that only unreadable records may have referred to, once the last of them is gone (I26). */
  readonly clearRemembered: QuarantineDeletion["clearRemembered"];
  readonly report: Report;
};

export type SnapshotPageQuery = SnapshotQuery & { readonly limit: number; readonly nextToken?: string | undefined };

export interface NamedSnapshots {
  /** @throws SNAPSHOT_NOT_FOUND; QUARANTINED where its record cannot be read. */
  get(asked: string): SnapshotInfo;
  /** Returns one page, newest first, and the token of the next page if more follow. */
  page(query: SnapshotPageQuery): { readonly items: SnapshotInfo[]; readonly next: string | undefined };
  /** Deletes a snapshot, readable or not; false if there is none by that id or name. Its running sandboxes continue, and starts under way finish. */
  delete(asked: string): Promise<boolean>;
  /** Merges other nodes' records of snapshot names; returns how many were news to this node. @throws DISK_FULL. */
  settle(records: readonly NameRecord[]): number;
  /** Returns the snapshot of this id or name as a template. */
  template(asked: string): Template | undefined;
}

export function openNamedSnapshots({ snapshots, checkpoints, quarantine, forget, clearRemembered, report }: NamedSnapshotsParts): NamedSnapshots {
  /** Deletes a snapshot whose record is unreadable; its files are found among those that no record names. */
  async function deleteUnreadable(asked: string): Promise<boolean> {
    const snapshotID = snapshots.unreadable(asked);
    if (snapshotID === undefined) return false;
    snapshots.remove(snapshotID);
    quarantine.drop("snapshot", snapshotID);
    await clearRemembered();
    report("snapshot.deleted", { templateID: snapshotID }, {});
    return true;
  }

  return {
    get(asked) {
      const unreadable = quarantine.find("snapshot", snapshots.unreadable(asked) ?? "");
      if (unreadable !== undefined) fail("QUARANTINED", `snapshot '${asked}' is quarantined: ${unreadable.reason}`);
      const found = snapshots.find(asked) ?? fail("SNAPSHOT_NOT_FOUND", `snapshot '${asked}' was not found; \`svc snapshot list\` lists them`);
      return shownSnapshot(found);
    },
    page({ limit, nextToken, ...query }) {
      const behind = nextToken === undefined ? undefined : parsePositionToken(nextToken);
      const all = snapshots.list(query);
      const following = behind === undefined ? all : all.filter((each) => comparePositions(positionOf(each), behind) > 0);
      const items = following.slice(0, limit);
      const last = items.at(-1);
      return { items: items.map(shownSnapshot), next: last === undefined || items.length === following.length ? undefined : positionToken(positionOf(last)) };
    },
    async delete(asked) {
      const snapshot = snapshots.find(asked);
      if (snapshot === undefined) return deleteUnreadable(asked);
      snapshots.remove(snapshot.snapshotID);
      quarantine.drop("snapshot", snapshot.snapshotID);
      await checkpoints.remove(snapshot.checkpointID);
      await forget(snapshot.snapshotID);
      report("snapshot.deleted", { sandboxID: snapshot.sandboxID, templateID: snapshot.snapshotID }, {});
      return true;
    },
    settle(records) {
      const { changed, unnamed } = snapshots.settle(records);
      for (const { snapshotID, sandboxID } of unnamed) report("snapshot.unnamed", { sandboxID, templateID: snapshotID }, {});
      return changed;
    },
    template(asked) {
      const snapshot = snapshots.find(asked);
      return snapshot === undefined ? undefined : templateOf(snapshot);
    },
  };
}

/** Lists are newest first, so later snapshots have lower positions. */
function positionOf({ createdAtWallMs, snapshotID }: NamedSnapshot): Position {
  return [-createdAtWallMs, snapshotID];
}

/** Returns a snapshot as a template. */
function templateOf(snapshot: NamedSnapshot): Template {
  const { snapshotID, limits, names } = snapshot;
  return {
    name: names[0] ?? "",
    templateID: snapshotID,
    cpuCount: limits.cpuCount,
    memoryMB: limits.memoryMB,
    diskSizeMB: limits.diskSizeMB,
    user: snapshot.user,
    workdir: snapshot.workdir,
    strictFiles: snapshot.strictFiles,
    env: { ...snapshot.env },
    createdAt: new Date(snapshot.createdAtWallMs).toISOString(),
    recipe: snapshot.checkpointID,
    source: "snapshot",
    binds: [...snapshot.image.binds],
    folder: "",
    image: snapshot.image,
    checkpointID: snapshot.checkpointID,
    isFilesOnly: snapshot.kind === "filesystem",
    envd: snapshot.envd,
    envdVersion: snapshot.envdVersion,
    runtime: snapshot.runtime,
    limits,
    volumes: snapshot.volumes,
    tenant: snapshot.tenant,
  };
}
