// The watch: ends sandboxes whose time is over, notices those that died, tries resisting ends again.
import { endSandbox } from "./end.ts";
import type { Node } from "./node.ts";
import { pauseSandbox, retryThaws } from "./pause.ts";
import { takeBackHeld } from "./recover.ts";
import { isRunning, type RunningRecord } from "./registry.ts";
import type { SandboxRecord } from "./state.ts";

const TICK_MS = 100;
/** Every so many ticks: liveness, then unfinished ends, then housekeeping of the records. */
const LIVENESS_TICKS = 5;
const MEMORY_KILLS_TICKS = 20;
const RETRY_TICKS = 50;
const PRUNE_TICKS = 600;
/** Whether what was set aside can be used again. */
const TAKE_BACK_TICKS = 100;

/** Kills for memory that a sandbox outlived are no reason of a later death. One just seen may be its death: it counts a look later. */
type MemoryKills = { readonly seen: number; readonly outlived: number };

export function openWatch(node: Node): { close(): Promise<void> } {
  let tick = 0;
  const outlived = new Map<string, MemoryKills>();
  /** Pauses at a timeout that are under way, or wait for their turn. */
  const pausing = new Set<string>();
  let takingBack: Promise<void> | undefined;
  const takeBack = () =>
    takeBackHeld(node)
      .catch((error: unknown) => node.log.error({ err: error }, "what was set aside could not be looked at again"))
      .finally(() => {
        takingBack = undefined;
      });
  const timer = setInterval(() => {
    tick++;
    for (const record of overdue(node.registry.all(), node.clock.monotonicMs())) timeOut(node, record, pausing);
    if (tick % LIVENESS_TICKS === 0) noticeDeaths(node, outlived);
    if (tick % MEMORY_KILLS_TICKS === 0) void countMemoryKills(node, outlived);
    if (tick % RETRY_TICKS === 0) retry(node);
    if (tick % PRUNE_TICKS === 0) prune(node);
    if (tick % TAKE_BACK_TICKS === 0 && takingBack === undefined && node.aside.all().length > 0) takingBack = takeBack();
  }, TICK_MS);
  return {
    async close() {
      clearInterval(timer);
      await takingBack;
    },
  };
}

/** Sandboxes whose time is over. Only the monotonic clock decides: a step of the wall clock neither kills nor spares (I6). */
export function overdue(records: Iterable<SandboxRecord>, monotonicMs: number): RunningRecord[] {
  const found: RunningRecord[] = [];
  for (const record of records) if (isRunning(record) && record.status.claim.deadlineMs <= monotonicMs) found.push(record);
  return found;
}

/** A pause at the timeout keeps what a pause by hand keeps; when it fails, the sandbox runs on and it is tried again. */
function timeOut(node: Node, { sandboxID, status }: RunningRecord, pausing: Set<string>): void {
  const { onTimeout, pauseKind } = status.claim;
  if (onTimeout === "kill") {
    if (!node.undecided.has(sandboxID)) void endSandbox(node, sandboxID, "timeout");
    return;
  }
  if (pausing.has(sandboxID)) return;
  pausing.add(sandboxID);
  pauseSandbox(node, sandboxID, { kind: pauseKind, cause: "timeout" })
    .catch((error: unknown) => node.log.error({ err: error, sandboxID }, "a sandbox could not be paused at its timeout; it runs on, and it is tried again"))
    .finally(() => pausing.delete(sandboxID));
}

function noticeDeaths(node: Node, outlived: ReadonlyMap<string, MemoryKills>): void {
  for (const record of node.registry.all()) {
    const { status } = record;
    if (status.state !== "running" && status.state !== "warm") continue;
    const runtime = node.runtimeNamed(status.handle.runtime);
    if (runtime.isAlive(status.handle)) continue;
    if (status.state === "warm") node.pool.drop(record.sandboxID);
    void runtime
      .deathReason(status.handle, outlived.get(record.sandboxID)?.outlived)
      .catch(() => "crashed" as const)
      .then((reason) => endSandbox(node, record.sandboxID, reason));
  }
}

async function countMemoryKills(node: Node, outlived: Map<string, MemoryKills>): Promise<void> {
  for (const sandboxID of outlived.keys()) if (!isRunning(node.registry.get(sandboxID))) outlived.delete(sandboxID);
  for (const record of [...node.registry.all()]) {
    if (!isRunning(record)) continue;
    const { handle } = record.status;
    const runtime = node.runtimeNamed(handle.runtime);
    const seen = await runtime.oomKills(handle).catch(() => 0);
    // Asked after the count: a death in between keeps its reason.
    if (seen > 0 && runtime.isAlive(handle)) outlived.set(record.sandboxID, { seen, outlived: outlived.get(record.sandboxID)?.seen ?? 0 });
  }
}

function retry(node: Node): void {
  for (const record of node.registry.all()) {
    if (record.status.state === "killing") void endSandbox(node, record.sandboxID, record.status.reason);
  }
  for (const [sandboxID, reason] of node.undecided) void endSandbox(node, sandboxID, reason);
  retryThaws(node);
  try {
    node.registry.saveAll();
  } catch (error) {
    node.log.warn({ err: error }, "records that wait for room on the disk could not be written; it is tried again");
  }
}

function prune(node: Node): void {
  try {
    node.records.prune(node.clock.wallMs());
  } catch (error) {
    node.log.warn({ err: error }, "records past their time could not be removed; it is tried again");
  }
}
