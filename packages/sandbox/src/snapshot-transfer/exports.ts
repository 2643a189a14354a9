// Exports in the background: paused sandboxes and snapshots that are not in object storage yet, a few at a time, with retries.
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { asFailure } from "@svc/contract/failures.ts";
import type { SnapshotInfo } from "@svc/contract/lifecycle.ts";
import type { ListedTemplate } from "@svc/contract/template.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Report } from "../observe/open-observe.ts";
import type { Quarantine } from "../records/quarantine.ts";
import { isOwned, isPaused, type Registry } from "../records/registry.ts";
import { type Snapshots, shownSnapshot } from "../records/snapshots.ts";
import type { Exported, Stored } from "./stored.ts";
import { keptAs } from "./subjects.ts";

// snapshot-transfer/exported/<sandboxID>.<checkpointID>   it is, or may be, in object storage; a resume or an end deletes it there
// snapshot-transfer/exported/<snapshotID>

/**
 * The note of a complete export with the program for its memory. Exports of an earlier version lack the program and are exported again, which sends
 * only the program.
 */
const WHOLE = "whole with its program";
const AT_ONCE = 2;
/** The bound for the close; an interrupted export is repeated after the next start without sending its stored chunks again. */
const CLOSE_MS = 2_000;
const FIRST_WAIT_MS = 1_000;
const LONGEST_WAIT_MS = 60_000;
/** Failures after which there is nothing to export: it was resumed, has ended or was deleted meanwhile. */
const over = new Set<string>(["SANDBOX_RUNNING", "SANDBOX_NOT_FOUND", "SNAPSHOT_NOT_FOUND", "SANDBOX_MOVED"]);
/** Failures that a retry may resolve. */
const passing = new Set<string>(["OBJECTS_UNAVAILABLE", "DISK_FULL", "TIMED_OUT", "TOO_MANY_REQUESTS", "ETCD_UNAVAILABLE", "INTERNAL"]);
export const isPassing = (name: string): boolean => passing.has(name);

export interface Sharing {
  /** The sandbox is complete in object storage under this manifest. @throws ETCD_UNAVAILABLE, SANDBOX_MOVED. */
  share(sandboxID: string, manifest: string): Promise<void>;
  /** The sandbox has ended. @throws ETCD_UNAVAILABLE. */
  forget(sandboxID: string): Promise<void>;
}

/** The entries that lists show while no node that has the snapshot or template answers. Every method @throws ETCD_UNAVAILABLE. */
export interface Catalog {
  put(kind: "snapshots", id: string, listed: SnapshotInfo): Promise<void>;
  put(kind: "templates", id: string, listed: ListedTemplate): Promise<void>;
  drop(kind: "snapshots" | "templates", id: string): Promise<void>;
}

export type ExportsParts = {
  readonly folder: string;
  readonly stored: Pick<Stored, "exportSandbox" | "exportSnapshot" | "dropSandbox" | "dropSnapshot">;
  readonly registry: Pick<Registry, "get" | "all">;
  readonly snapshots: Pick<Snapshots, "find" | "list">;
  readonly quarantine: Pick<Quarantine, "find">;
  readonly sharing: Sharing | undefined;
  readonly catalog: Catalog | undefined;
  readonly report: Report;
  readonly log: Log;
};

export interface Exports {
  readonly waiting: number;
  /** Exports soon, by id, with retries while object storage does not answer; an id that is gone by then is skipped. */
  soon(id: string): void;
  /** Marks the export as outdated before the record changes, so that nothing here treats it as complete any more. */
  outdate(id: string): Promise<void>;
  /** Returns true if object storage may still have something of it. */
  has(id: string): Promise<boolean>;
  /** Returns once it is stored and other nodes may take it over. @throws the failure of this one attempt; retries then follow in the background. */
  now(id: string): Promise<void>;
  /** The sandbox was resumed or has ended, or the snapshot was deleted: deletes the export soon. */
  drop(id: string): void;
  /** Notes that it is in object storage: it was imported from there, or another node may resume it from there. */
  note(id: string): Promise<void>;
  /** Ends another node's sandbox that this node took over to end it. @throws ETCD_UNAVAILABLE; retries then follow in the background. */
  end(paused: { readonly sandboxID: string; readonly checkpointID: string }): Promise<void>;
  /** Forgets the export, since it belongs to another node now. */
  forget(id: string): Promise<void>;
  /** Called after a start: exports what is not stored yet and deletes the exports that nothing needs any more. */
  start(): Promise<void>;
  close(): Promise<void>;
}

export async function openExports({ folder, stored, registry, snapshots, quarantine, sharing, catalog, report, log }: ExportsParts): Promise<Exports> {
  const notes = join(folder, "exported");
  await mkdir(notes, { recursive: true, mode: 0o700 });
  const pending = new Set<string>();
  const underWay = new Map<string, Promise<void>>();
  /** Snapshots listed in etcd, with the names that they had. */
  const listed = new Map<string, readonly string[]>();
  /** Exports that are complete, and whose event waits until other nodes can find them. */
  const unreported = new Map<string, Exported>();
  const closing = new AbortController();
  let workers = 0;

  const isSnapshot = (id: string) => id.startsWith("snap");
  const noteOf = (id: string): string | undefined => {
    if (isSnapshot(id)) return snapshots.find(id) === undefined ? undefined : id;
    const checkpointID = keptAs(registry.get(id));
    return checkpointID === undefined ? undefined : `${id}.${checkpointID}`;
  };
  /** True if the record is quarantined: the export is then kept, because it may be the only copy. */
  const isQuarantined = (id: string) => quarantine.find(isSnapshot(id) ? "snapshot" : "sandbox", id) !== undefined;

  const isWhole = async (note: string) => (await readFile(join(notes, note), "utf8").catch(() => "")) === WHOLE;

  async function send(id: string, note: string): Promise<void> {
    if (await isWhole(note)) return;
    // The empty note is written first: a kill before the export leaves a note without an export, never an export that nothing deletes.
    await writeFile(join(notes, note), "");
    const exported = await (isSnapshot(id) ? stored.exportSnapshot(id) : stored.exportSandbox(id));
    await writeFile(join(notes, note), WHOLE);
    if (!isSnapshot(id)) unreported.set(note, exported);
  }
  /** Runs one export at a time per checkpoint. */
  function once(id: string): Promise<void> {
    const note = noteOf(id);
    if (note === undefined) return Promise.resolve();
    const work = underWay.get(note) ?? send(id, note).finally(() => underWay.delete(note));
    underWay.set(note, work);
    return work;
  }

  /** Exports, then lets other nodes take the sandbox over, or lists the snapshot. */
  async function complete(id: string): Promise<void> {
    const note = noteOf(id);
    await once(id);
    if (note === undefined) return;
    if (isSnapshot(id)) return await list(id);
    await sharing?.share(id, `sandboxes/${note.replace(".", "/")}`);
    const exported = unreported.get(note);
    const record = registry.get(id);
    // The event says that the sandbox outlives this node, which holds only once other nodes can find it.
    if (unreported.delete(note) && exported !== undefined && record !== undefined)
      report("sandbox.exported", record, { sentBytes: exported.sentBytes, keptBytes: exported.keptBytes });
  }

  /** Lists the snapshot in the catalog, and lists again this node's other snapshots whose name it took. */
  async function list(snapshotID: string): Promise<void> {
    // A fetched snapshot is listed by its origin node.
    if (catalog === undefined || snapshots.find(snapshotID)?.originNodeID !== undefined) return;
    const taken = snapshots.find(snapshotID)?.names ?? [];
    for (const each of listed.keys()) {
      const current = snapshots.find(each);
      if (each === snapshotID || !listed.get(each)?.some((name) => taken.includes(name)) || current === undefined) continue;
      await catalog.put("snapshots", each, shownSnapshot(current));
      listed.set(each, current.names);
    }
    const current = snapshots.find(snapshotID);
    // A deleted snapshot is removed from object storage by its own drop.
    if (current === undefined) return;
    await catalog.put("snapshots", snapshotID, shownSnapshot(current));
    listed.set(snapshotID, current.names);
    if (snapshots.find(snapshotID) === undefined) await catalog.drop("snapshots", snapshotID);
  }

  /** Deletes all exports of an id except that of the current checkpoint. */
  async function dropOver(id: string): Promise<void> {
    if (isQuarantined(id)) return;
    const current = noteOf(id);
    // The ownership record goes first: another node may take over only what is still stored.
    if (!isSnapshot(id) && !isOwned(registry.get(id))) await sharing?.forget(id);
    for (const note of (await readdir(notes)).filter((name) => name === id || name.startsWith(`${id}.`))) {
      if (note === current) continue;
      unreported.delete(note);
      const [, checkpointID] = note.split(".");
      if (checkpointID === undefined) {
        await catalog?.drop("snapshots", id);
        listed.delete(id);
      }
      await (checkpointID === undefined ? stored.dropSnapshot(id) : stored.dropSandbox(id, checkpointID));
      await rm(join(notes, note), { force: true });
    }
  }

  async function work(): Promise<void> {
    workers++;
    let waitMs = FIRST_WAIT_MS;
    try {
      for (let [id] = pending; id !== undefined && !closing.signal.aborted; [id] = pending) {
        pending.delete(id);
        try {
          await complete(id).catch((error: unknown) => {
            if (!over.has(asFailure(error).name)) throw error;
          });
          // The old export is deleted after the new one is complete, so that a paused sandbox always has one.
          await dropOver(id);
          waitMs = FIRST_WAIT_MS;
        } catch (error) {
          const failure = asFailure(error);
          // An export interrupted by the stop is repeated after the next start.
          if (closing.signal.aborted) return;
          log.error({ err: error, id, isTriedAgain: isPassing(failure.name) }, "a snapshot or paused sandbox could not be exported to object storage");
          if (!isPassing(failure.name)) continue;
          pending.add(id);
          await sleep(waitMs, undefined, { signal: closing.signal, ref: false }).catch(() => undefined);
          waitMs = Math.min(LONGEST_WAIT_MS, waitMs * 2);
        }
      }
    } finally {
      workers--;
    }
  }
  function soon(id: string): void {
    pending.add(id);
    if (workers < AT_ONCE && !closing.signal.aborted) void work();
  }

  return {
    get waiting() {
      return pending.size + underWay.size;
    },
    soon,
    drop: soon,
    async outdate(id) {
      const note = noteOf(id);
      if (note === undefined) return;
      await underWay.get(note)?.catch(() => undefined);
      if (await isWhole(note)) await writeFile(join(notes, note), "");
    },
    has: async (id) => (await readdir(notes)).some((name) => name === id || name.startsWith(`${id}.`)),
    async now(id) {
      try {
        if (isSnapshot(id)) await once(id);
        else await complete(id);
        // The entry in etcd may follow in the background.
        if (isSnapshot(id)) soon(id);
      } catch (error) {
        soon(id);
        throw error;
      }
    },
    async note(id) {
      const note = noteOf(id);
      if (note !== undefined) await writeFile(join(notes, note), WHOLE);
    },
    async end({ sandboxID, checkpointID }) {
      await writeFile(join(notes, `${sandboxID}.${checkpointID}`), "");
      await sharing?.forget(sandboxID).finally(() => soon(sandboxID));
    },
    async forget(id) {
      pending.delete(id);
      for (const note of (await readdir(notes)).filter((name) => name === id || name.startsWith(`${id}.`))) {
        unreported.delete(note);
        await rm(join(notes, note), { force: true });
      }
    },
    async start() {
      const whole = new Set<string>();
      for (const note of await readdir(notes)) {
        const [id = ""] = note.split(".");
        if (note === noteOf(id) && (await isWhole(note))) whole.add(id);
        else soon(id);
      }
      // Complete exports are repeated as well if there are other nodes, since those may not know of them.
      for (const record of registry.all()) if (isPaused(record) && (sharing !== undefined || !whole.has(record.sandboxID))) soon(record.sandboxID);
      for (const { snapshotID, originNodeID } of snapshots.list({}))
        if (originNodeID === undefined && (catalog !== undefined || !whole.has(snapshotID))) soon(snapshotID);
    },
    async close() {
      closing.abort();
      await Promise.race([Promise.allSettled(underWay.values()), sleep(CLOSE_MS, undefined, { ref: false })]);
    },
  };
}
