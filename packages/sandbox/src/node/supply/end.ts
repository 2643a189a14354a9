// Ends a sandbox: the decision is written to disk first, then its parts are torn down. Repeated requests wait for the same end.
import type { KeyedLock } from "@svc/kit/keyed-lock.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Networks } from "../../network/networks.ts";
import type { Observe, Report } from "../../observe/open-observe.ts";
import type { Checkpoints } from "../../records/checkpoints.ts";
import type { Quarantine } from "../../records/quarantine.ts";
import { isRunning, type Registry } from "../../records/registry.ts";
import type { SandboxRecord } from "../../records/state.ts";
import type { DeathReason } from "../../runtime/runtime.ts";
import type { Drivers } from "./drivers.ts";
import type { NodeMetrics, Stages } from "./node-metrics.ts";
import type { ProxyLink } from "./proxy-link.ts";

/** The time to collect the processes' output from envd before the sandbox ends. */
const COLLECT_MS = 100;

export type EndParts = {
  /** Serializes pause, resume, checkpoint and end of one sandbox. */
  readonly lock: KeyedLock;
  readonly registry: Registry;
  readonly drivers: Drivers;
  readonly checkpoints: Pick<Checkpoints, "remove">;
  readonly networks: Pick<Networks, "detach"> | undefined;
  readonly proxy: Pick<ProxyLink, "drop">;
  readonly takenDown: Set<string>;
  readonly collect: Observe["collect"];
  readonly report: Report;
  readonly metrics: Pick<NodeMetrics, "ended">;
  readonly stages: Stages;
  readonly quarantine: Pick<Quarantine, "drop">;
  readonly log: Log;
};

export interface Ends {
  /**
   * Returns when no part of the sandbox is left, or when a part could not be removed: that is logged, and `retry` removes it (I2).
   * @throws DISK_FULL when the end could not be recorded; the sandbox then continues unchanged.
   */
  delete(sandboxID: string, reason: DeathReason): Promise<void>;
  /** As `delete`, for callers that do not report failures to a client: `retry` repeats an end that the full disk did not record. */
  end(sandboxID: string, reason: DeathReason): Promise<void>;
  /** As `delete`, if `stillIs` holds for the record once no other operation on the sandbox is under way; returns whether it did. */
  endIf(sandboxID: string, reason: DeathReason, stillIs: (record: SandboxRecord) => boolean): Promise<boolean>;
  /** True while the end was requested but could not be recorded. */
  isUndecided(sandboxID: string): boolean;
  /** Called by the watch; repeats the ends that are not finished. */
  retry(): void;
}

export function openEnds(parts: EndParts): Ends {
  const { lock, registry, drivers, log } = parts;
  /** The ends under way, one per sandbox. */
  const underWay = new Map<string, Promise<void>>();
  /** `undecided`: sandboxes whose end could not be recorded; `resisting`: those of which a part could not be removed. */
  const undecided = new Map<string, DeathReason>();
  const resisting = new Set<string>();

  function decide(sandboxID: string, reason: DeathReason): Promise<void> {
    const known = underWay.get(sandboxID);
    if (known !== undefined) return known;
    const end = lock.runUnbounded(sandboxID, () => decideAndTearDown(sandboxID, reason)).finally(() => underWay.delete(sandboxID));
    underWay.set(sandboxID, end);
    return end;
  }

  async function end(sandboxID: string, reason: DeathReason): Promise<void> {
    try {
      await decide(sandboxID, reason);
      undecided.delete(sandboxID);
    } catch (error) {
      if (!undecided.has(sandboxID)) log.error({ err: error, sandboxID, reason }, "the end of a sandbox could not be recorded; retrying");
      undecided.set(sandboxID, reason);
    }
  }

  async function decideAndTearDown(sandboxID: string, reason: DeathReason): Promise<void> {
    const before = registry.get(sandboxID);
    if (before === undefined) return;
    if (isRunning(before) && drivers.runtimes.get(before.status.handle.runtime)?.isAlive(before.status.handle) === true)
      await parts.collect(sandboxID, COLLECT_MS);
    // I2: from here the end is completed, even if this process is killed.
    registry.move(sandboxID, { event: "dying", reason });
    try {
      await tearDown(parts, sandboxID);
      resisting.delete(sandboxID);
    } catch (error) {
      if (!resisting.has(sandboxID)) log.error({ err: error, sandboxID }, "a sandbox could not be torn down; retrying");
      resisting.add(sandboxID);
    }
  }

  return {
    delete: decide,
    end,
    endIf: (sandboxID, reason, stillIs) =>
      lock.runUnbounded(sandboxID, async () => {
        const record = registry.get(sandboxID);
        if (record === undefined || !stillIs(record)) return false;
        await decideAndTearDown(sandboxID, reason);
        return true;
      }),
    isUndecided: (sandboxID) => undecided.has(sandboxID),
    retry() {
      for (const { sandboxID, status } of registry.all()) if (status.state === "killing") void end(sandboxID, status.reason);
      for (const [sandboxID, reason] of undecided) void end(sandboxID, reason);
    },
  };
}

async function tearDown(parts: EndParts, sandboxID: string): Promise<void> {
  const { registry, drivers, checkpoints, networks, proxy, takenDown, report, metrics, stages, quarantine } = parts;
  const record = registry.get(sandboxID);
  if (record?.status.state !== "killing") return;
  proxy.drop(sandboxID);
  takenDown.delete(sandboxID);
  const { handle, claim, kept, reason } = record.status;
  const left = { runtimeID: sandboxID, directory: record.directory };
  const stage = stages(handle?.runtime ?? drivers.runtime.name);
  // The checkpoint goes first: its removal is what frees space on a full disk, and no later step needs it.
  if (kept !== undefined) await stage("release", () => checkpoints.remove(kept.checkpointID));
  await stage("destroy", async () => {
    if (handle === undefined) await Promise.all([...drivers.runtimes.values()].map((runtime) => runtime.destroy(left)));
    else await (await drivers.toEnd(handle.runtime)).destroy(left);
  });
  const network = handle?.network;
  if (network !== undefined) await stage("detach", async () => networks?.detach(network));
  if (claim !== undefined) {
    metrics.ended.inc({ reason });
    // The event precedes the removal of the record: after a kill in between it is reported twice rather than never.
    report("sandbox.ended", record, { reason });
  }
  await stage("forget", async () => registry.forget(sandboxID));
  quarantine.drop("sandbox", sandboxID);
}
