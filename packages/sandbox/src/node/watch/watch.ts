// The watch: ends sandboxes at their timeout, notices those that died, and retries ends that failed.
import { asFailure, type FailureName } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Clock } from "../../records/clock.ts";
import type { Quarantine } from "../../records/quarantine.ts";
import type { Records } from "../../records/records.ts";
import { isRunning, type Registry, type RunningRecord } from "../../records/registry.ts";
import type { SandboxRecord } from "../../records/state.ts";
import type { Ends } from "../supply/end.ts";
import { PAUSE_RETRY_MS, type Pauses } from "../verbs/pause.ts";
import type { Deaths } from "./deaths.ts";
import type { Idle } from "./idle.ts";

const TICK_MS = 100;
/** Failures that refuse a pause only for a moment, so that it is retried sooner. */
const PASSING: readonly FailureName[] = ["TOO_MANY_REQUESTS", "SANDBOX_CHANGING_STATE"];
const PASSING_MS = 1_000;
/** Intervals in ticks: liveness, limit hits, unfinished ends, expired records. */
const LIVENESS_TICKS = 5;
const LIMIT_HITS_TICKS = 20;
const RETRY_TICKS = 50;
const PRUNE_TICKS = 600;
/** The interval at which quarantined items are checked again. */
const TAKE_BACK_TICKS = 100;

export type WatchParts = {
  readonly registry: Pick<Registry, "all" | "saveAll">;
  readonly records: Pick<Records, "prune">;
  readonly deaths: Pick<Deaths, "look" | "countLimitHits">;
  readonly ends: Pick<Ends, "end" | "isUndecided" | "retry">;
  readonly pauses: Pauses;
  readonly idle: Pick<Idle, "start">;
  readonly quarantine: Pick<Quarantine, "all">;
  readonly takeBackUnusable: () => Promise<void>;
  readonly clock: Clock;
  readonly log: Log;
};

export function openWatch(parts: WatchParts): { close(): Promise<void> } {
  const { registry, clock, quarantine, log } = parts;
  parts.idle.start();
  let tick = 0;
  const atTimeout = openTimeoutPauses(parts);
  let takingBack: Promise<void> | undefined;
  const takeBack = () =>
    parts
      .takeBackUnusable()
      .catch((error: unknown) => log.error({ err: error }, "what was quarantined could not be checked again"))
      .finally(() => {
        takingBack = undefined;
      });
  const timer = setInterval(() => {
    tick++;
    for (const record of overdue(registry.all(), clock.monotonicMs())) timeOut(parts, record, atTimeout);
    if (tick % LIVENESS_TICKS === 0) parts.deaths.look();
    if (tick % LIMIT_HITS_TICKS === 0) void parts.deaths.countLimitHits();
    if (tick % RETRY_TICKS === 0) retry(parts);
    if (tick % PRUNE_TICKS === 0) prune(parts);
    if (tick % TAKE_BACK_TICKS === 0 && takingBack === undefined && quarantine.all().length > 0) takingBack = takeBack();
  }, TICK_MS);
  return {
    async close() {
      clearInterval(timer);
      await takingBack;
    },
  };
}

/** Returns the sandboxes past their deadline. Only the monotonic clock decides, so a step of the wall clock neither kills nor spares (I6). */
export function overdue(records: Iterable<SandboxRecord>, monotonicMs: number): RunningRecord[] {
  const found: RunningRecord[] = [];
  for (const record of records) if (isRunning(record) && record.status.claim.deadlineMs <= monotonicMs) found.push(record);
  return found;
}

function timeOut({ ends }: WatchParts, record: RunningRecord, pauseAtTimeout: (record: RunningRecord) => void): void {
  if (record.status.claim.onTimeout === "pause") pauseAtTimeout(record);
  else if (!ends.isUndecided(record.sandboxID)) void ends.end(record.sandboxID, "timeout");
}

/** Pauses a sandbox at its timeout as a request would; if the pause fails, the sandbox keeps running and the pause is retried. */
function openTimeoutPauses({ pauses, clock, log }: Pick<WatchParts, "pauses" | "clock" | "log">): (record: RunningRecord) => void {
  /**
   * Per sandbox: the deadline last acted upon, and when to try again (infinity while a pause is under way). The record alone does not suffice: on
   * a full disk it keeps the old deadline.
   */
  const tried = new Map<string, { readonly deadlineMs: number; readonly againMs: number }>();
  return ({ sandboxID, status }) => {
    const { deadlineMs, pauseKind } = status.claim;
    const last = tried.get(sandboxID);
    if (last !== undefined && (last.againMs === Number.POSITIVE_INFINITY || (last.deadlineMs === deadlineMs && last.againMs > clock.monotonicMs()))) return;
    tried.set(sandboxID, { deadlineMs, againMs: Number.POSITIVE_INFINITY });
    pauses.pause(sandboxID, { kind: pauseKind, cause: "timeout" }).then(
      () => tried.delete(sandboxID),
      (error: unknown) => {
        log.error({ err: error, sandboxID }, "a sandbox could not be paused at its timeout; it keeps running, retrying");
        const nowMs = clock.monotonicMs();
        // This also removes the entries of sandboxes that have ended.
        for (const [id, { againMs }] of tried) if (againMs <= nowMs) tried.delete(id);
        const hasPassed = PASSING.includes(asFailure(error).name);
        tried.set(sandboxID, { deadlineMs, againMs: nowMs + (hasPassed ? PASSING_MS : PAUSE_RETRY_MS) });
      },
    );
  };
}

function retry({ registry, ends, pauses, log }: WatchParts): void {
  ends.retry();
  pauses.retryThaws();
  try {
    registry.saveAll();
  } catch (error) {
    log.warn({ err: error }, "records that wait for free disk space could not be written; retrying");
  }
}

function prune({ records, clock, log }: WatchParts): void {
  try {
    records.prune(clock.wallMs());
  } catch (error) {
    log.warn({ err: error }, "expired records could not be removed; retrying");
  }
}
