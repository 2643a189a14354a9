// Pause: freeze, checkpoint, and only when the checkpoint is whole and on record, take the running parts away.
import { fail } from "@svc/contract/failures.ts";
import type { KeyedLock } from "@svc/kit/keyed-lock.ts";
import type { Log } from "@svc/kit/log.ts";
import { untilHealthy } from "../agent/health.ts";
import type { Networks } from "../network/networks.ts";
import type { Observe, Report } from "../observe/open-observe.ts";
import type { Checkpoints } from "../records/checkpoints.ts";
import type { Clock } from "../records/clock.ts";
import type { Registry, RunningRecord } from "../records/registry.ts";
import type { Kept } from "../records/state.ts";
import type { CheckpointKind } from "../runtime/runtime.ts";
import type { Checkpointer } from "./checkpoint.ts";
import type { Drivers } from "./drivers.ts";
import type { Stages } from "./node-metrics.ts";
import type { ProxyLink } from "./proxy-link.ts";

/** A timeout's pause that failed is tried again after this; the sandbox runs on meanwhile, since ending it would lose its files. */
export const PAUSE_RETRY_MS = 60_000;
const GUEST_ANSWERS_MS = 2_000;
/** What envd knows of its processes can be read while the sandbox is paused, if it says so this fast. */
const COLLECT_MS = 100;
const PARTS_ATTEMPTS = 3;

/** Why it was the turn of one that does nothing: its own time was over, or memory or a place was short. */
export const idleCauses = ["idle", "memory", "places"] as const;
export type IdleCause = (typeof idleCauses)[number];

export type PauseRequest = {
  readonly kind: CheckpointKind;
  readonly cause: "request" | "timeout" | "drain" | "move" | IdleCause;
  readonly requireHealthyGuest?: boolean;
  /** Asked right before it is frozen: where it holds, nothing happens. */
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
  /** Paused sandboxes of which nothing runs or is left on the host, as far as this process knows. */
  readonly takenDown: Set<string>;
  readonly collect: Observe["collect"];
  readonly report: Report;
  readonly stages: Stages;
  readonly clock: Clock;
  readonly log: Log;
};

export interface Pauses {
  /**
   * Returns when its checkpoint is whole and on record, or where `unless` held; its running parts go right after, and whatever is asked of it next waits for that.
   * @throws SANDBOX_PAUSED when it is paused already; CHECKPOINT_UNAVAILABLE, CHECKPOINT_FAILED, DISK_FULL: then it runs on.
   */
  pause(sandboxID: string, request: PauseRequest): Promise<void>;
  /** For the watch: sandboxes whose pause failed and that could not be thawed. */
  retryThaws(): void;
}

export function openPauses(parts: PauseParts): Pauses {
  const { lock, registry, clock, log } = parts;
  /** Sandboxes whose pause failed and that could not be thawed. */
  const frozen = new Set<string>();

  /** It is on record as running only when it runs: one that cannot be thawed stays `pausing`, and is tried again (I23). */
  async function thaw(sandboxID: string, deadlineMs: number): Promise<void> {
    const record = registry.get(sandboxID);
    if (record?.status.state !== "pausing") return void frozen.delete(sandboxID);
    const { handle } = record.status;
    const runtime = parts.drivers.named(handle.runtime);
    if (!runtime.isAlive(handle)) {
      frozen.delete(sandboxID);
      // Noticed like any other death, with its reason.
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
          // Set anew while it waited for the lock.
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

/** False where it was not to be paused after all. */
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
  // I11: the record names the checkpoint before it exists, and says `paused` only when it is whole.
  registry.move(sandboxID, { event: "pausing", kept });
  parts.proxy.drop(sandboxID);
  try {
    await parts.stages(runtime.name)("freeze", () => runtime.freeze(handle));
    const { sizeBytes } = await checkpointer.take(record, { checkpointID: kept.checkpointID, kind, isKept: true });
    registry.move(sandboxID, { event: "paused", pausedAtWallMs: clock.wallMs() });
    report("sandbox.paused", record, { cause, kind, sizeBytes });
    return true;
  } catch (error) {
    // Also one that is whole, where only its record found no room.
    await checkpoints
      .remove(kept.checkpointID)
      .catch((left: unknown) => parts.log.error({ err: left, sandboxID }, "the checkpoint of a failed pause could not be removed"));
    await thaw(sandboxID, cause === "timeout" ? clock.monotonicMs() + PAUSE_RETRY_MS : claim.deadlineMs);
    throw error;
  }
}

/** Nothing is lost when this is cut off: what stays behind is found by the next resume or start. */
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

/** What works for it may just have been killed; it is asked again at once, since a paused sandbox should hold nothing. */
async function severalTimes(work: () => Promise<void>): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      if (attempt >= PARTS_ATTEMPTS) throw error;
    }
  }
}
