// Resume: starts from the checkpoint on a network slot of its own, sends envd what changed, then removes the checkpoint.
import { randomUUID } from "node:crypto";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import type { KeyedLock } from "@svc/kit/keyed-lock.ts";
import type { Ownership } from "../../cluster/ownership.ts";
import type { NetworkSlot } from "../../network/networks.ts";
import type { Report } from "../../observe/open-observe.ts";
import type { Checkpoints } from "../../records/checkpoints.ts";
import type { Clock } from "../../records/clock.ts";
import { isPaused, type PausedRecord, type Registry, type RunningRecord } from "../../records/registry.ts";
import { resumeChargeOf } from "../../records/tenant-usage.ts";
import type { CheckpointKind, Runtime, RuntimeHandle } from "../../runtime/runtime.ts";
import type { Images } from "../../template/images.ts";
import type { Admission } from "../supply/admission.ts";
import { type BringUpParts, bringUp } from "../supply/bring-up.ts";
import { type Capacity, drains } from "../supply/capacity.ts";
import type { Drivers } from "../supply/drivers.ts";
import type { Identities } from "../supply/identity.ts";
import type { NodeMetrics } from "../supply/node-metrics.ts";
import type { PrecreatedPool } from "../supply/precreated-pool.ts";
import { type RetryStartParts, retryStart } from "../supply/retry-start.ts";
import type { Trust } from "../supply/trust.ts";
import type { Claims } from "./claims.ts";

export type ResumeRequest = {
  readonly timeoutSeconds: number;
  /** With `filesystem` only the files are restored, even if the memory was kept. */
  readonly kind?: CheckpointKind | undefined;
  readonly cause: "request" | "connect" | "traffic";
  /** The client's address, where the cause is traffic. */
  readonly client?: string;
};

export type ResumeParts = BringUpParts &
  RetryStartParts & {
    readonly lock: KeyedLock;
    readonly registry: Registry;
    readonly drivers: Pick<Drivers, "named">;
    readonly checkpoints: Checkpoints;
    readonly precreatedPool: Pick<PrecreatedPool, "take" | "discard">;
    readonly images: Pick<Images, "ready" | "groundOf">;
    readonly capacity: Capacity;
    readonly ownership: Pick<Ownership, "others"> | undefined;
    readonly admission: Pick<Admission, "run">;
    readonly identities: Pick<Identities, "sendAll" | "sendReturn">;
    readonly trust: Pick<Trust, "install">;
    readonly claims: Pick<Claims, "settled" | "keep" | "stays">;
    readonly takenDown: Set<string>;
    readonly bootID: string;
    readonly clock: Clock;
    readonly metrics: Pick<NodeMetrics, "resumeSeconds">;
    readonly report: Report;
  };

/** Returns when the sandbox runs and its envd answers. @throws the failures of a start, SNAPSHOT_DAMAGED; the sandbox then stays paused. */
export type ResumeSandbox = (sandboxID: string, request: ResumeRequest) => Promise<{ record: RunningRecord; resumed: boolean }>;

export function openResume(parts: ResumeParts): ResumeSandbox {
  const { lock, registry, capacity, admission, claims } = parts;
  return async (sandboxID, request) => {
    await claims.settled(sandboxID);
    return lock.run(sandboxID, async () => {
      const known = registry.get(sandboxID);
      // A concurrent resume may have finished while this one waited for the lock.
      if (!isPaused(known)) return { record: registry.running(sandboxID), resumed: false };
      const attempt = () => {
        const paused = registry.get(sandboxID);
        // An end may have been decided since the last attempt; `running` then throws.
        return isPaused(paused) ? resume(parts, paused, request) : Promise.resolve(registry.running(sandboxID));
      };
      if (capacity.isDraining) await refuseWhereAllDrain(parts.ownership);
      const record = await capacity.reserve(resumeChargeOf(known.status.claim.tenant, known.limits), async () => {
        // I43: etcd must refuse takeovers before any part of the sandbox starts.
        await claims.keep(sandboxID);
        return retryStart(parts, () => admission.run(attempt)).catch((error: unknown) => {
          claims.stays(sandboxID);
          throw error;
        });
      });
      return { record, resumed: true };
    });
  };
}

/**
 * Refuses a resume if every node of the deployment drains. If another node accepts sandboxes, or etcd does not answer, `reserve` below refuses
 * for this node alone.
 */
async function refuseWhereAllDrain(ownership: ResumeParts["ownership"]): Promise<void> {
  const others = await ownership?.others().catch(() => undefined);
  if (others === undefined || others.length > 0) return;
  const message =
    "every node of the deployment that serves drains, so none may resume it: `svc nodes list` shows them, `svc nodes undrain NODE` makes one ready again";
  throw new Failure("CAPACITY_EXHAUSTED", message, drains);
}

async function resume(parts: ResumeParts, paused: PausedRecord, request: ResumeRequest): Promise<RunningRecord> {
  const { registry, checkpoints, identities, clock, log } = parts;
  const { sandboxID } = paused;
  const { kept, claim } = paused.status;
  const runtime = parts.drivers.named(kept.runtime);
  const begin = performance.now();
  registry.move(sandboxID, { event: "resuming", kept });
  // Removed last, since a half-resumed sandbox may still read it.
  await using filesAlone = new AsyncDisposableStack();
  await using undo = new AsyncDisposableStack();
  undo.defer(() => void registry.moveBack(sandboxID, { event: "stayed" }));
  try {
    let from = kept;
    if (request.kind === "filesystem" && kept.kind === "memory") {
      const checkpointID = checkpoints.newID();
      from = { ...kept, kind: "filesystem", checkpointID };
      filesAlone.defer(removing(parts, sandboxID, "a checkpoint of files alone", () => checkpoints.remove(checkpointID)));
      await keepFilesAlone(parts, runtime, paused, checkpointID);
    }
    // A start from files alone is a boot, and programs in the sandbox must see that in boot_id.
    const guestBootID = from.kind === "memory" ? paused.guestBootID : randomUUID();
    const handle = await run(parts, runtime, paused, { checkpointID: from.checkpointID, guestBootID }, undo);
    if (from.kind === "memory") await parts.stages(runtime.name)("identity", () => identities.sendReturn(paused, handle, claim));
    else await identities.sendAll(paused, handle, claim, "returned");
    // The authority may have been replaced while it was paused, or its rules set.
    await parts.trust.install(paused, handle, claim);
    const deadlineMs = clock.monotonicMs() + request.timeoutSeconds * 1000;
    const { timeoutSeconds } = request;
    const record = registry.resumed(sandboxID, { event: "resumed", handle, deadlineMs, timeoutSeconds }, { bootID: parts.bootID, guestBootID });
    undo.move(); // From here on the running sandbox owns its parts.
    parts.metrics.resumeSeconds.observe({ cause: request.cause, kind: from.kind }, (performance.now() - begin) / 1000);
    parts.report("sandbox.resumed", record, {
      cause: request.cause,
      kind: from.kind,
      timeoutSeconds,
      ...(request.client === undefined ? {} : { client: request.client }),
    });
    // The record no longer names the checkpoint, so after a kill the next start sweeps it.
    void removing(parts, sandboxID, "the checkpoint of a resumed sandbox", () => checkpoints.remove(kept.checkpointID))();
    return record;
  } catch (error) {
    log.warn({ err: error, sandboxID }, "a sandbox could not be resumed; it stays paused");
    throw asFailure(error);
  }
}

/** Removes a part; a failure is only logged, since the other parts must be removed as well. */
function removing({ log }: Pick<ResumeParts, "log">, sandboxID: string, what: string, remove: () => Promise<unknown> | undefined): () => Promise<void> {
  return async () => {
    try {
      await remove();
    } catch (error) {
      log.error({ err: error, sandboxID }, `${what} could not be removed; the next start of the node tries again`);
    }
  };
}

type From = { readonly checkpointID: string; readonly guestBootID: string; readonly isForFiles?: boolean };

/** Starts the sandbox; `undo` then has the steps that remove its parts again. */
async function run(parts: ResumeParts, runtime: Runtime, record: PausedRecord, from: From, undo: AsyncDisposableStack): Promise<RuntimeHandle> {
  const { sandboxID, directory } = record;
  const destroy = () => runtime.destroy({ runtimeID: sandboxID, directory });
  // An earlier run may have left parts behind, if its end was interrupted.
  if (!parts.takenDown.delete(sandboxID)) await destroy();
  const checkpoint = await parts.checkpoints.find(from.checkpointID);
  const { egress, volumes = [] } = record.status.claim;
  // A precreated sandbox was started for this processor, and has its mounts already.
  const precreated = from.isForFiles === true || volumes.length > 0 ? undefined : await parts.precreatedPool.take(runtime, { ...record, from: checkpoint });
  let slot: NetworkSlot | undefined;
  // Steps run in reverse order: a slot can be detached only once nothing runs in it. Discarding a precreated sandbox detaches its slot.
  if (precreated !== undefined) undo.defer(() => parts.precreatedPool.discard(precreated));
  else undo.defer(removing(parts, sandboxID, "a half-resumed sandbox's network", () => slot && parts.networks?.detach(slot)));
  undo.defer(removing(parts, sandboxID, "a half-resumed sandbox", destroy));
  const onSlot = (attached: NetworkSlot) => void (slot = attached);
  return bringUp(parts, { record, runtime, ...from, egress, volumes, precreated, onSlot });
}

/** Extracts the files of a memory checkpoint. Only the sandbox itself can read them, so it is restored, frozen at once and checkpointed again. */
async function keepFilesAlone(parts: ResumeParts, runtime: Runtime, record: PausedRecord, checkpointID: string): Promise<void> {
  if (!runtime.checkpoints.has("filesystem")) fail("CHECKPOINT_UNAVAILABLE", `the ${runtime.name} driver cannot start a sandbox from its files alone`);
  await using restored = new AsyncDisposableStack();
  const from = { checkpointID: record.status.kept.checkpointID, guestBootID: record.guestBootID, isForFiles: true };
  const handle = await run(parts, runtime, record, from, restored);
  await runtime.freeze(handle);
  const { templateID, envd, envdVersion, initKey } = record;
  const origin = { templateID, envd, envdVersion, initKey, rootfs: parts.images.groundOf(record.image), isKept: false };
  await parts.checkpoints.take(checkpointID, "filesystem", runtime.name, (into) => runtime.checkpoint(handle, into), origin);
}
