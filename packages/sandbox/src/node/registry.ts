// All sandboxes of this node in memory and on disk: every change of state goes through here, record first.
import { Failure, fail } from "@svc/contract/failures.ts";
import { deriveToken } from "@svc/kit/secret.ts";
import type { ProxyEntry, SandboxDirectory } from "../proxy/directory.ts";
import type { Clock } from "./clock.ts";
import type { IdempotentCreate, Records } from "./records.ts";
import { advance, type Claim, type Event, type SandboxRecord, type Status } from "./state.ts";

type Running = Extract<Status, { state: "running" }>;
export type RunningRecord = SandboxRecord & { readonly status: Running };

export interface Registry extends SandboxDirectory {
  add(record: SandboxRecord): void;
  /** Puts back what a record said at the last stop; nothing is written. */
  restore(record: SandboxRecord): void;
  get(sandboxID: string): SandboxRecord | undefined;
  all(): IterableIterator<SandboxRecord>;
  /** Moves on by `event`; on disk before in memory. */
  move(sandboxID: string, event: Event): SandboxRecord;
  claim(sandboxID: string, claim: Claim, idempotent: IdempotentCreate | undefined): RunningRecord;
  /** Forgets a sandbox that is in state killing. */
  forget(sandboxID: string): void;
  /** A sandbox that a client owns. @throws SANDBOX_NOT_FOUND, with the reason where it ended within the hour. */
  running(sandboxID: string): RunningRecord;
  readonly size: number;
}

export function isRunning(record: SandboxRecord | undefined): record is RunningRecord {
  return record?.status.state === "running";
}

export function openRegistry(records: Records, seed: string, clock: Clock): Registry {
  const byID = new Map<string, SandboxRecord>();
  /** What the proxy sees: the running ones, their tokens derived once. */
  const doors = new Map<string, ProxyEntry>();

  function show(record: SandboxRecord): void {
    byID.set(record.sandboxID, record);
    if (!isRunning(record)) {
      doors.delete(record.sandboxID);
      return;
    }
    if (doors.has(record.sandboxID)) return;
    const { handle, claim } = record.status;
    doors.set(record.sandboxID, {
      sandboxID: record.sandboxID,
      handle,
      secure: claim.secure,
      trafficPrivate: claim.trafficPrivate,
      envdAccessToken: deriveToken(seed, "envd", record.sandboxID),
      trafficAccessToken: deriveToken(seed, "traffic", record.sandboxID),
      maskRequestHost: claim.maskRequestHost,
    });
  }

  function moved(sandboxID: string, event: Event): SandboxRecord {
    const record = byID.get(sandboxID) ?? fail("INTERNAL", `no record of ${sandboxID}`);
    return { ...record, status: advance(record.status, event) };
  }

  return {
    add(record) {
      records.put(record);
      show(record);
    },
    restore: show,
    get: (sandboxID) => byID.get(sandboxID),
    all: () => byID.values(),
    move(sandboxID, event) {
      const next = moved(sandboxID, event);
      const { status } = next;
      // A client that owned it is told why from this moment on, for an hour.
      if (event.event === "dying" && isRunning(byID.get(sandboxID)) && status.state === "killing") {
        records.putEnding(next, { sandboxID, reason: status.reason, endedAtWallMs: clock.wallMs() });
      } else {
        records.put(next);
      }
      show(next);
      return next;
    },
    claim(sandboxID, claim, idempotent) {
      const next = moved(sandboxID, { event: "claimed", claim }) as RunningRecord;
      records.putClaimed(next, idempotent, clock.wallMs());
      show(next);
      return next;
    },
    forget(sandboxID) {
      const record = byID.get(sandboxID);
      if (record === undefined || record.status.state !== "killing") return;
      records.remove(sandboxID);
      byID.delete(sandboxID);
    },
    running(sandboxID) {
      const record = byID.get(sandboxID);
      if (isRunning(record)) return record;
      const ended = records.ended(sandboxID);
      if (ended === undefined) fail("SANDBOX_NOT_FOUND", `sandbox '${sandboxID}' was not found`);
      const endedAt = new Date(ended.endedAtWallMs).toISOString();
      throw new Failure("SANDBOX_NOT_FOUND", `sandbox '${sandboxID}' was not found: it ended at ${endedAt} (${ended.reason})`, {
        details: { reason: ended.reason, endedAt },
      });
    },
    find: (sandboxID) => doors.get(sandboxID),
    entries: () => doors.values(),
    get size() {
      return byID.size;
    },
  };
}
