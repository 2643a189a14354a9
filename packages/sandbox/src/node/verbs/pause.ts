// Pause: freezes the sandbox, takes a checkpoint, and removes the running parts only once the checkpoint is complete and recorded (I11).
import { fail } from "@svc/contract/failures.ts";
import type { KeyedLock } from "@svc/kit/keyed-lock.ts";
import type { Log } from "@svc/kit/log.ts";
import { untilHealthy } from "../../agent/health.ts";
import type { Networks } from "../../network/networks.ts";
import type { Observe, Report } from "../../observe/open-observe.ts";
import type { Checkpoints } from "../../records/checkpoints.ts";
import type { Clock } from "../../records/clock.ts";
import type { Registry, RunningRecord } from "../../records/registry.ts";
import type { Kept } from "../../records/state.ts";
import type { CheckpointKind } from "../../runtime/runtime.ts";
import type { Checkpointer } from "../supply/checkpoint.ts";
import type { Drivers } from "../supply/drivers.ts";
import type { Stages } from "../supply/node-metrics.ts";
import type { ProxyLink } from "../supply/proxy-link.ts";

/** The delay before a failed pause at the timeout is retried; the sandbox keeps running, since ending it would lose its files. */
export const PAUSE_RETRY_MS = 60_000;
const GUEST_ANSWERS_MS = 2_000;
/** The time to collect the processes' output, so that it can be read while the sandbox is paused. */
const COLLECT_MS = 100;
const PARTS_ATTEMPTS = 3;

/** Why an idle sandbox was paused: its idle time was over, or memory or capacity was short. */
export const idleCauses = ["idle", "memory", "places"] as const;
export type IdleCause = (typeof idleCauses)[number];

export type PauseRequest = {
  readonly kind: CheckpointKind;
  readonly cause: "request" | "timeout" | "drain" | "move" | IdleCause;
  readonly requireHealthyGuest?: boolean;
  /** Called right before the freeze; if it returns true, the sandbox is not paused. */
  readonly unless?: () => boolean;
};

export type PauseParts = {
  readonly lock: KeyedLock;
  readonly registry: Registry;
  readonly drivers: Pick<Drivers, "named">;
  readonly checkpoints: Pick<Checkpoints, "newID" | "remove">;
  readonly checkpointer: Checkpointer;
  readonly networks: Pick<Networks, "detach"> | undefined;
  readonly proxy: Pick<ProxyLink, "drop">;
  /** Paused sandboxes of which this process has removed all running parts. */
  readonly takenDown: Set<string>;
  readonly collect: Observe["collect"];
  readonly report: Report;
  readonly stages: Stages;
  readonly clock: Clock;
  readonly log: Log;
};

export interface Pauses {
  /**
   * Returns when the checkpoint is complete and recorded, or when `unless` returned true. The running parts are removed right after, and later
   * requests to the sandbox wait for that.
   * @throws SANDBOX_PAUSED when it is paused already; CHECKPOINT_UNAVAILABLE, CHECKPOINT_FAILED, DISK_FULL: it then keeps running.
   */
  pause(sandboxID: string, request: PauseRequest): Promise<void>;
  /** Called by the watch: thaws sandboxes whose pause failed and that could not be thawed then. */
  retryThaws(): void;
}

export function openPauses(parts: PauseParts): Pauses {
  const { lock, registry, clock, log } = parts;
  /** Sandboxes whose pause failed and that could not be thawed. */
  const frozen = new Set<string>();

  /** Thaws a sandbox. It is recorded as running only once it runs; until then it stays `pausing`, and the thaw is retried (I23). */
  async function thaw(sandboxID: string, deadlineMs: number): Promise<void> {
    const record = registry.get(sandboxID);
    if (record?.status.state !== "pausing") return void frozen.delete(sandboxID);
    const { handle } = record.status;
    const runtime = parts.drivers.named(handle.runtime);
    if (!runtime.isAlive(handle)) {
      frozen.delete(sandboxID);
      // The watch notices the death like any other, with its reason.
      return void registry.moveBack(sandboxID, { event: "thawed", deadlineMs });
    }
    try {
      await runtime.thaw(handle);
      frozen.delete(sandboxID);
      registry.moveBack(sandboxID, { event: "thawed", deadlineMs });
    } catch (error) {
      if (!frozen.has(sandboxID)) log.error({ err: error, sandboxID }, "a sandbox whose pause failed could not be thawed; it is frozen, retrying");
      frozen.add(sandboxID);
    }
  }

  return {
    pause(sandboxID, request) {
      const paused = Promise.withResolvers<void>();
      lock
        .run(sandboxID, async () => {
          const record = registry.running(sandboxID);
          // The deadline may have been moved while this waited for the lock.
          if (request.cause === "timeout" && record.status.claim.deadlineMs > clock.monotonicMs()) return;
          const isPaused = await pause(parts, record, request, thaw).catch((error: Error) => {
            parts.report("sandbox.pause_failed", record, { cause: request.cause, message: error.message.slice(0, 500) });
            throw error;
          });
          if (!isPaused) return;
          paused.resolve();
          await takeRunningParts(parts, record);
        })
        .then(paused.resolve, paused.reject);
      return paused.promise;
    },
    retryThaws() {
      for (const sandboxID of frozen) {
        const { status } = registry.get(sandboxID) ?? {};
        const deadlineMs = status?.state === "pausing" ? Math.max(status.claim.deadlineMs, clock.monotonicMs() + PAUSE_RETRY_MS) : 0;
        void lock
          .run(sandboxID, () => thaw(sandboxID, deadlineMs))
          .catch((error: unknown) => log.error({ err: error, sandboxID }, "a thaw could not be attempted"));
      }
    },
  };
}

type Thaw = (sandboxID: string, deadlineMs: number) => Promise<void>;

/** Returns false where `unless` prevented the pause. */
async function pause(parts: PauseParts, record: RunningRecord, request: PauseRequest, thaw: Thaw): Promise<boolean> {
  const { kind, cause, requireHealthyGuest, unless } = request;
  const { registry, checkpoints, checkpointer, report, clock } = parts;
  const { sandboxID } = record;
  const { handle, claim } = record.status;
  const runtime = parts.drivers.named(handle.runtime);
  checkpointer.check(record, kind);
  if (requireHealthyGuest === true) {
    await untilHealthy(handle, GUEST_ANSWERS_MS, () => runtime.isAlive(handle)).catch((cause: unknown) =>
      fail("GUEST_UNRESPONSIVE", `sandbox '${sandboxID}' was not paused: its envd did not answer within ${GUEST_ANSWERS_MS} ms`, { cause }),
    );
  }
  await parts.collect(sandboxID, COLLECT_MS);
  if (unless?.() === true) return false;
  const kept: Kept = { checkpointID: checkpoints.newID(), kind, runtime: runtime.name };
  // I11: the record names the checkpoint before it exists, and says `paused` only when it is complete.
  registry.move(sandboxID, { event: "pausing", kept });
  parts.proxy.drop(sandboxID);
  try {
    await parts.stages(runtime.name)("freeze", () => runtime.freeze(handle));
    const { sizeBytes } = await checkpointer.take(record, { checkpointID: kept.checkpointID, kind, isKept: true });
    registry.move(sandboxID, { event: "paused", pausedAtWallMs: clock.wallMs() });
    report("sandbox.paused", record, { cause, kind, sizeBytes });
    return true;
  } catch (error) {
    // This also removes a complete checkpoint whose record did not fit on the disk.
    await checkpoints
      .remove(kept.checkpointID)
      .catch((left: unknown) => parts.log.error({ err: left, sandboxID }, "the checkpoint of a failed pause could not be removed"));
    await thaw(sandboxID, cause === "timeout" ? clock.monotonicMs() + PAUSE_RETRY_MS : claim.deadlineMs);
    throw error;
  }
}

/** Removes the running parts. An interruption loses nothing: the next resume or start finds what is left. */
async function takeRunningParts({ drivers, networks, stages, takenDown, log }: PauseParts, { sandboxID, directory, status }: RunningRecord): Promise<void> {
  const { runtime: name, network } = status.handle;
  const runtime = drivers.named(name);
  await severalTimes(() => stages(name)("destroy", () => runtime.destroy({ runtimeID: sandboxID, directory })))
    .then(() => takenDown.add(sandboxID))
    .catch((error: unknown) => log.error({ err: error, sandboxID }, "the running parts of a paused sandbox could not be removed; its resume tries again"));
  if (network === undefined) return;
  void severalTimes(async () => networks?.detach(network)).catch((error: unknown) =>
    log.error({ err: error, sandboxID }, "the network of a paused sandbox could not be removed"),
  );
}

/** Retries at once, since a helper process may have been killed, and a paused sandbox should occupy neither memory nor a slot. */
async function severalTimes(work: () => Promise<void>): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      if (attempt >= PARTS_ATTEMPTS) throw error;
    }
  }
}
