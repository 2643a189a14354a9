// Exports in the background: what is paused or kept here and is not yet in object storage, one after the other, until it is there.
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { asFailure } from "@svc/contract/failures.ts";
import type { SnapshotInfo } from "@svc/contract/lifecycle.ts";
import type { ListedTemplate } from "@svc/contract/template.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Quarantine } from "../records/quarantine.ts";
import { isOwned, isPaused, type Registry } from "../records/registry.ts";
import { type Snapshots, shownSnapshot } from "../records/snapshots.ts";
import type { Stored } from "./stored.ts";
import { keptAs } from "./subjects.ts";

// snapshot-transfer/exported/<sandboxID>.<checkpointID>   it is, or may be, in object storage: a resume or an end takes it away there
// snapshot-transfer/exported/<snapshotID>

/** With the program that its memory needs; what an earlier version exported without is exported again, and only that is sent. */
const WHOLE = "whole with its program";
const AT_ONCE = 2;
/** What is under way goes on from its beginning after the next start; what it sent by then is not sent again. */
const CLOSE_MS = 2_000;
const FIRST_WAIT_MS = 1_000;
const LONGEST_WAIT_MS = 60_000;
/** It was resumed, has ended or was deleted meanwhile. */
const over = new Set<string>(["SANDBOX_RUNNING", "SANDBOX_NOT_FOUND", "SNAPSHOT_NOT_FOUND", "SANDBOX_MOVED"]);
/** What another attempt may change. */
const passing = new Set<string>(["OBJECTS_UNAVAILABLE", "DISK_FULL", "TIMED_OUT", "TOO_MANY_REQUESTS", "ETCD_UNAVAILABLE", "INTERNAL"]);
export const isPassing = (name: string): boolean => passing.has(name);

export interface Sharing {
  /** It is whole there under this name. @throws ETCD_UNAVAILABLE, SANDBOX_MOVED. */
  share(sandboxID: string, manifest: string): Promise<void>;
  /** It has ended. @throws ETCD_UNAVAILABLE. */
  forget(sandboxID: string): Promise<void>;
}

/** What lists show of it while no node that has it answers. Each @throws ETCD_UNAVAILABLE. */
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
  readonly log: Log;
};

export interface Exports {
  readonly waiting: number;
  /** Exports it soon; again and again while object storage does not answer. By id; what is gone by then is left out. */
  soon(id: string): void;
  /** What its record says is about to change: what is there will not do, and nothing here takes it for whole any more. */
  outdate(id: string): Promise<void>;
  /** Whether something of it may be there that nobody has taken away yet. */
  has(id: string): Promise<boolean>;
  /** When it is there, and others may take it over. @throws what the one attempt throws; then it is tried on in the background. */
  now(id: string): Promise<void>;
  /** It was resumed, has ended or was deleted: takes it away there, soon. */
  drop(id: string): void;
  /** It came from there, or is there for another node to go on with. */
  note(id: string): Promise<void>;
  /** It was another node's, which this one took it from to end it. @throws ETCD_UNAVAILABLE; then it is tried on in the background. */
  end(paused: { readonly sandboxID: string; readonly checkpointID: string }): Promise<void>;
  /** What is there of it is another node's now. */
  forget(id: string): Promise<void>;
  /** After a start: exports what is missing, takes away what is over. */
  start(): Promise<void>;
  close(): Promise<void>;
}

export async function openExports({ folder, stored, registry, snapshots, quarantine, sharing, catalog, log }: ExportsParts): Promise<Exports> {
  const notes = join(folder, "exported");
  await mkdir(notes, { recursive: true, mode: 0o700 });
  const pending = new Set<string>();
  const underWay = new Map<string, Promise<void>>();
  /** Snapshots that etcd lists, by the names that they had. */
  const listed = new Map<string, readonly string[]>();
  const closing = new AbortController();
  let workers = 0;

  const isSnapshot = (id: string) => id.startsWith("snap");
  const noteOf = (id: string): string | undefined => {
    if (isSnapshot(id)) return snapshots.find(id) === undefined ? undefined : id;
    const checkpointID = keptAs(registry.get(id));
    return checkpointID === undefined ? undefined : `${id}.${checkpointID}`;
  };
  /** Nothing is known of what its record says: what is there of it may be all that is left. */
  const isQuarantined = (id: string) => quarantine.find(isSnapshot(id) ? "snapshot" : "sandbox", id) !== undefined;

  const isWhole = async (note: string) => (await readFile(join(notes, note), "utf8").catch(() => "")) === WHOLE;

  async function send(id: string, note: string): Promise<void> {
    if (await isWhole(note)) return;
    // Before it is there: a kill between the two leaves a note of nothing, never an export that nobody takes away.
    await writeFile(join(notes, note), "");
    await (isSnapshot(id) ? stored.exportSnapshot(id) : stored.exportSandbox(id));
    await writeFile(join(notes, note), WHOLE);
  }
  /** One at a time for each moment that it was kept at. */
  function once(id: string): Promise<void> {
    const note = noteOf(id);
    if (note === undefined) return Promise.resolve();
    const work = underWay.get(note) ?? send(id, note).finally(() => underWay.delete(note));
    underWay.set(note, work);
    return work;
  }

  /** As `once`, and others may take over what is there. */
  async function complete(id: string): Promise<void> {
    const note = noteOf(id);
    await once(id);
    if (note === undefined) return;
    if (isSnapshot(id)) await list(id);
    else await sharing?.share(id, `sandboxes/${note.replace(".", "/")}`);
  }

  /** As lists show it, and those of this node's whose name it may have taken. */
  async function list(snapshotID: string): Promise<void> {
    // One that was fetched is its own node's to list.
    if (catalog === undefined || snapshots.find(snapshotID)?.originNodeID !== undefined) return;
    const taken = snapshots.find(snapshotID)?.names ?? [];
    for (const each of listed.keys()) {
      const current = snapshots.find(each);
      if (each === snapshotID || !listed.get(each)?.some((name) => taken.includes(name)) || current === undefined) continue;
      await catalog.put("snapshots", each, shownSnapshot(current));
      listed.set(each, current.names);
    }
    const current = snapshots.find(snapshotID);
    // It was deleted meanwhile, which takes it away there.
    if (current === undefined) return;
    await catalog.put("snapshots", snapshotID, shownSnapshot(current));
    listed.set(snapshotID, current.names);
    if (snapshots.find(snapshotID) === undefined) await catalog.drop("snapshots", snapshotID);
  }

  /** Takes away what is there of an id, but what is paused now. */
  async function dropOver(id: string): Promise<void> {
    if (isQuarantined(id)) return;
    const current = noteOf(id);
    // First: what another node takes over must be there.
    if (!isSnapshot(id) && !isOwned(registry.get(id))) await sharing?.forget(id);
    for (const note of (await readdir(notes)).filter((name) => name === id || name.startsWith(`${id}.`))) {
      if (note === current) continue;
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
          // Last: there is always one there of what is paused.
          await dropOver(id);
          waitMs = FIRST_WAIT_MS;
        } catch (error) {
          const failure = asFailure(error);
          // What the stop cut off is the next start's.
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
        // What etcd lists of it may follow.
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
      for (const note of (await readdir(notes)).filter((name) => name === id || name.startsWith(`${id}.`))) await rm(join(notes, note), { force: true });
    },
    async start() {
      const whole = new Set<string>();
      for (const note of await readdir(notes)) {
        const [id = ""] = note.split(".");
        if (note === noteOf(id) && (await isWhole(note))) whole.add(id);
        else soon(id);
      }
      // Of those that are whole, others may not know.
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
