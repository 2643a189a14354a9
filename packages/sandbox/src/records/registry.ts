// All sandboxes of this node, in memory and on disk: every state change goes through here and is recorded first.
import { Failure, fail, isDiskFull } from "@svc/contract/failures.ts";
import { deriveToken } from "@svc/kit/secret.ts";
import type { Clock } from "./clock.ts";
import type { IdempotentCreate } from "./create-keys.ts";
import type { Access, ProxyEntry, SandboxDirectory } from "./directory.ts";
import type { Quarantine } from "./quarantine.ts";
import type { Records } from "./records.ts";
import { advance, type Claim, type Event, type SandboxRecord, type Status } from "./state.ts";

type Of<S extends Status["state"]> = SandboxRecord & { readonly status: Extract<Status, { state: S }> };
export type RunningRecord = Of<"running">;
export type PausedRecord = Of<"paused">;
/** A sandbox that a client owns, running or not, until its end is decided. */
export type OwnedRecord = Of<"running" | "pausing" | "paused" | "resuming">;

export interface Registry extends Omit<SandboxDirectory, "wake" | "isMoving" | "moveOver"> {
  add(record: SandboxRecord): void;
  /** Restores a record of the last run in memory; nothing is written. */
  restore(record: SandboxRecord): void;
  get(sandboxID: string): SandboxRecord | undefined;
  all(): IterableIterator<SandboxRecord>;
  /** Applies `event`, on disk before in memory. @throws DISK_FULL; the state is then unchanged. */
  move(sandboxID: string, event: Event): SandboxRecord;
  /**
   * Returns to the state before a step that failed. A restart treats the failed step's state in the same way, so a full disk does not refuse
   * this:
   * `saveAll` writes the record later.
   */
  moveBack(sandboxID: string, event: Extract<Event, { event: "thawed" | "stayed" }>): SandboxRecord;
  /** Writes the records that a full disk has not taken yet. */
  saveAll(): void;
  claim(sandboxID: string, claim: Claim, idempotent: IdempotentCreate | undefined): RunningRecord;
  /** As `move`, and records the node's boot, on whose clock the deadline is, and the boot that the sandbox sees. */
  resumed(sandboxID: string, event: Event, boot: Pick<SandboxRecord, "bootID" | "guestBootID">): RunningRecord;
  /** Forgets a paused sandbox that the other node owns now. */
  release(sandboxID: string, nodeID: string): void;
  /** Forgets a sandbox in state killing. */
  forget(sandboxID: string): void;
  /** Returns a running sandbox that a client owns. @throws SANDBOX_NOT_FOUND as `owned`; SANDBOX_PAUSED, SANDBOX_CHANGING_STATE. */
  running(sandboxID: string): RunningRecord;
  /** Returns a sandbox that a client owns. @throws SANDBOX_NOT_FOUND, with the reason if it ended within the hour; SANDBOX_MOVED. */
  owned(sandboxID: string): OwnedRecord;
  /** Returns the tenant of a sandbox that a client owns, or that ended within the hour; `none` if this node does not know of one. */
  ownerOf(sandboxID: string): Owner;
  /** Calls `onChange` for every client's sandbox that begins to run, is paused or is gone. */
  watch(onChange: (sandboxID: string, shown: "running" | "paused" | "gone") => void): () => void;
  readonly size: number;
  /** The number of running sandboxes that clients own. */
  readonly runningCount: number;
}

/** `tenant` is absent where the owner is the deployment itself. */
export type Owner = "none" | { readonly tenant?: string | undefined };

const MAX_MOVED = 10_000;

export function isRunning(record: SandboxRecord | undefined): record is RunningRecord {
  return record?.status.state === "running";
}

export function isPaused(record: SandboxRecord | undefined): record is PausedRecord {
  return record?.status.state === "paused";
}

export function isOwned(record: SandboxRecord | undefined): record is OwnedRecord {
  return record !== undefined && "claim" in record.status && record.status.state !== "killing";
}

/** Maps to the two states that clients know: a pausing sandbox runs until its checkpoint is complete, a resuming one is still paused. */
export function shownState({ status }: Pick<OwnedRecord, "status">): "running" | "paused" {
  return status.state === "running" || status.state === "pausing" ? "running" : "paused";
}

export function openRegistry(records: Records, seed: string, clock: Clock, quarantine: Pick<Quarantine, "find">): Registry {
  /** Sandboxes that moved back in memory but not on disk. */
  const unsaved = new Set<string>();
  const byID = new Map<string, SandboxRecord>();
  /** The proxy's view: running sandboxes, and those that traffic may resume; their tokens are derived once. */
  const running = new Map<string, ProxyEntry>();
  const asleep = new Map<string, Access>();
  /** The most recent moves only; gateways know the location of the others. */
  const movedAway = new Map<string, string>();
  const watchers = new Set<Parameters<Registry["watch"]>[0]>();

  function accessOf({ sandboxID }: SandboxRecord, claim: Claim): Access {
    const { secure, trafficPrivate, maskRequestHost, httpsPorts = [] } = claim;
    const envdAccessToken = deriveToken(seed, "envd", sandboxID);
    const trafficAccessToken = deriveToken(seed, "traffic", sandboxID);
    return { sandboxID, secure, trafficPrivate, envdAccessToken, trafficAccessToken, maskRequestHost, httpsPorts };
  }

  function show(record: SandboxRecord): void {
    const { sandboxID } = record;
    if (watchers.size > 0) notify(byID.get(sandboxID), record);
    byID.set(sandboxID, record);
    if (!isRunning(record)) running.delete(sandboxID);
    else if (!running.has(sandboxID)) running.set(sandboxID, { ...accessOf(record, record.status.claim), handle: record.status.handle });
    const sleeps = isOwned(record) && !isRunning(record) && record.status.claim.autoResume;
    if (!sleeps) asleep.delete(sandboxID);
    else if (!asleep.has(sandboxID)) asleep.set(sandboxID, accessOf(record, record.status.claim));
  }

  function notify(before: SandboxRecord | undefined, now: SandboxRecord): void {
    const shown = isOwned(now) ? shownState(now) : "gone";
    const was = isOwned(before) ? shownState(before) : "gone";
    if (shown !== was) for (const watcher of watchers) watcher(now.sandboxID, shown);
  }

  function moved(sandboxID: string, event: Event): SandboxRecord {
    const record = byID.get(sandboxID) ?? fail("INTERNAL", `no record of ${sandboxID}`);
    return { ...record, status: advance(record.status, event) };
  }

  function owned(sandboxID: string): OwnedRecord {
    const record = byID.get(sandboxID);
    if (isOwned(record)) return record;
    const quarantined = quarantine.find("sandbox", sandboxID);
    const nodeID = record === undefined ? movedAway.get(sandboxID) : undefined;
    if (nodeID !== undefined)
      throw new Failure("SANDBOX_MOVED", `sandbox '${sandboxID}' moved to node ${nodeID}: send the request there, or to a gateway`, {
        details: { node: nodeID },
      });
    if (record === undefined && quarantined !== undefined) fail("QUARANTINED", `sandbox '${sandboxID}' is quarantined: ${quarantined.reason}`);
    const ended = records.ended(sandboxID);
    if (ended === undefined) fail("SANDBOX_NOT_FOUND", `sandbox '${sandboxID}' was not found`);
    const endedAt = new Date(ended.endedAtWallMs).toISOString();
    throw new Failure("SANDBOX_NOT_FOUND", `sandbox '${sandboxID}' was not found: it ended at ${endedAt} (${ended.reason})`, {
      details: { reason: ended.reason, endedAt },
    });
  }

  return {
    add(record) {
      records.put(record);
      movedAway.delete(record.sandboxID);
      show(record);
    },
    restore: show,
    get: (sandboxID) => byID.get(sandboxID),
    all: () => byID.values(),
    move(sandboxID, event) {
      const next = moved(sandboxID, event);
      const { status } = next;
      // From now on, for an hour, clients get the reason of the end.
      const before = byID.get(sandboxID);
      if (event.event === "dying" && isOwned(before) && status.state === "killing") {
        records.putEnding(next, { sandboxID, reason: status.reason, endedAtWallMs: clock.wallMs(), tenant: before.status.claim.tenant });
      } else if (event.event === "dying") {
        records.putBack(next);
      } else {
        records.put(next);
      }
      unsaved.delete(sandboxID);
      show(next);
      return next;
    },
    moveBack(sandboxID, event) {
      const next = moved(sandboxID, event);
      try {
        records.putBack(next);
      } catch (error) {
        if (!isDiskFull(error)) throw error;
        unsaved.add(sandboxID);
      }
      show(next);
      return next;
    },
    saveAll() {
      for (const sandboxID of unsaved) {
        const record = byID.get(sandboxID);
        if (record !== undefined) records.putBack(record);
        unsaved.delete(sandboxID);
      }
    },
    claim(sandboxID, claim, idempotent) {
      const next = moved(sandboxID, { event: "claimed", claim }) as RunningRecord;
      records.putClaimed(next, idempotent, clock.wallMs());
      show(next);
      return next;
    },
    resumed(sandboxID, event, boot) {
      const next = { ...moved(sandboxID, event), ...boot } as RunningRecord;
      records.put(next);
      show(next);
      return next;
    },
    release(sandboxID, nodeID) {
      if (!isPaused(byID.get(sandboxID))) return;
      records.remove(sandboxID);
      byID.delete(sandboxID);
      asleep.delete(sandboxID);
      unsaved.delete(sandboxID);
      movedAway.set(sandboxID, nodeID);
      if (movedAway.size > MAX_MOVED) movedAway.delete(movedAway.keys().next().value as string);
      for (const watcher of watchers) watcher(sandboxID, "gone");
    },
    movedTo: (sandboxID) => movedAway.get(sandboxID),
    forget(sandboxID) {
      const record = byID.get(sandboxID);
      if (record === undefined || record.status.state !== "killing") return;
      records.remove(sandboxID);
      byID.delete(sandboxID);
      unsaved.delete(sandboxID);
    },
    ownerOf(sandboxID) {
      const record = byID.get(sandboxID);
      if (isOwned(record)) return { tenant: record.status.claim.tenant };
      return records.ended(sandboxID) ?? "none";
    },
    owned,
    running(sandboxID) {
      const record = owned(sandboxID);
      if (isRunning(record)) return record;
      if (isPaused(record)) fail("SANDBOX_PAUSED", `sandbox '${sandboxID}' is paused; connect to it or resume it first`);
      throw new Failure("SANDBOX_CHANGING_STATE", `sandbox '${sandboxID}' is ${record.status.state}; try again in a moment`, { retryAfterSeconds: 1 });
    },
    find: (sandboxID) => running.get(sandboxID),
    entries: () => running.values(),
    sleeping: (sandboxID) => asleep.get(sandboxID),
    sleepers: () => asleep.values(),
    isPaused(sandboxID) {
      const record = byID.get(sandboxID);
      return isOwned(record) && !isRunning(record) && !asleep.has(sandboxID);
    },
    watch(onChange) {
      watchers.add(onChange);
      return () => watchers.delete(onChange);
    },
    get size() {
      return byID.size;
    },
    get runningCount() {
      return running.size;
    },
  };
}
