// Starts a sandbox up to the point where envd answers and no client owns it yet; undoes itself when it fails.
import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { InitKeys } from "../../agent/init-keys.ts";
import type { EgressPolicy } from "../../egress/policy.ts";
import type { Checkpoints } from "../../records/checkpoints.ts";
import type { Registry } from "../../records/registry.ts";
import type { SandboxRecord } from "../../records/state.ts";
import type { Limits, Precreated, Runtime } from "../../runtime/runtime.ts";
import { runStartup } from "../../template/startup.ts";
import type { Template } from "../../template/template.ts";
import type { NodeSettings } from "../settings.ts";
import { type BringUpParts, bringUp } from "./bring-up.ts";
import type { Drivers } from "./drivers.ts";
import type { Ends } from "./end.ts";
import type { PrecreatedPool, Wanted } from "./precreated-pool.ts";
import { newSandboxID } from "./sandbox-id.ts";

export type StartParts = BringUpParts & {
  readonly checkpoints: Pick<Checkpoints, "find" | "verify" | "holding">;
  readonly registry: Registry;
  readonly drivers: Pick<Drivers, "runtime" | "named">;
  readonly initKeys: Pick<InitKeys, "current" | "unnamed">;
  readonly ends: Pick<Ends, "end">;
  readonly precreatedPool: Pick<PrecreatedPool, "discard">;
  /** The limits of new sandboxes; 0 means the template's. */
  readonly limits: Pick<NodeSettings["sandbox"], "cpu_count" | "memory_mb" | "disk_size_mb" | "pids"> & Pick<NodeSettings["template"], "max_disk_size_mb">;
  /** The node's slot in its deployment, part of every new id. */
  readonly slot: number | undefined;
  readonly bootID: string;
  /** The file name of the envd for new sandboxes, in `bin` of the home. */
  readonly envd: string;
  readonly envdVersion: string;
  readonly log: Log;
};

/** Returns a precreated sandbox to start in; without one the start makes its own. */
export type PrecreatedSource = (runtime: Runtime, wanted: Wanted) => Promise<Precreated | undefined>;

/** Returns a sandbox in state warm. @throws SANDBOX_START_FAILED, SNAPSHOT_DAMAGED; nothing of it is left then. */
export type StartWarm = (template: Template, egress: EgressPolicy, precreatedFrom?: PrecreatedSource) => Promise<SandboxRecord>;

export function openStart(parts: StartParts): StartWarm {
  return (template, egress, precreatedFrom) => startWarm(parts, template, egress, precreatedFrom);
}

export function limitsFor({ cpu_count, memory_mb, disk_size_mb, max_disk_size_mb, pids }: StartParts["limits"], template: Template): Limits {
  // A memory image can only be restored with the limits it was taken with.
  if (template.limits !== undefined) return template.limits;
  return {
    cpuCount: cpu_count || template.cpuCount,
    memoryMB: memory_mb || template.memoryMB,
    diskSizeMB: disk_size_mb || Math.min(template.diskSizeMB, max_disk_size_mb),
    pids,
  };
}

async function startWarm(parts: StartParts, template: Template, egress: EgressPolicy, precreatedFrom: PrecreatedSource | undefined): Promise<SandboxRecord> {
  const { registry, drivers, checkpoints, precreatedPool } = parts;
  const runtime = template.runtime === undefined ? drivers.runtime : drivers.named(template.runtime);
  const limits = limitsFor(parts.limits, template);
  const envd = template.envd ?? parts.envd;
  const from = template.checkpointID === undefined ? undefined : await checkpoints.find(template.checkpointID);
  // A sandbox started from a checkpoint keeps the key of that checkpoint (I34).
  const initKey = from === undefined ? parts.initKeys.current : from.initKey;
  // A precreated sandbox has its mounts already, and none of them is a volume.
  const hasVolumes = template.volumes !== undefined && template.volumes.length > 0;
  const precreated = hasVolumes ? undefined : await precreatedFrom?.(runtime, { image: template.image, limits, envd, initKey, from });
  // The new sandbox takes over the precreated one's id.
  const sandboxID = precreated?.handle.runtimeID ?? newSandboxID(parts.slot);
  const guestBootID = randomUUID();
  // I1: the record exists before the first part does.
  const record: SandboxRecord = {
    sandboxID,
    bootID: parts.bootID,
    directory: join(parts.home, "sandboxes", sandboxID),
    templateID: template.templateID,
    checkpointID: template.checkpointID,
    image: template.image,
    envdVersion: template.envdVersion ?? parts.envdVersion,
    envd,
    initKey,
    guestBootID,
    limits,
    status: { state: "creating" },
  };
  await using unrecorded = new AsyncDisposableStack();
  if (precreated !== undefined) unrecorded.defer(() => precreatedPool.discard(precreated));
  registry.add(record);
  unrecorded.move(); // From here on the end of the record removes the precreated sandbox as well.
  let slot = precreated?.handle.network;
  await using undo = new AsyncDisposableStack();
  undo.defer(async () => {
    const { status } = registry.get(sandboxID) ?? {};
    await parts.ends.end(sandboxID, "crashed");
    // The record of a sandbox that never started has no handle, so its slot is detached here.
    if (status?.state === "creating" && slot !== undefined) await parts.networks?.detach(slot);
  });
  try {
    const { checkpointID, startup, env, user, workdir } = template;
    const up = () =>
      bringUp(parts, {
        record,
        runtime,
        guestBootID,
        checkpointID,
        isVerified: template.verified,
        egress,
        volumes: template.volumes,
        precreated,
        onSlot: (attached) => {
          slot = attached;
        },
        // With the handle recorded, an undo also finds the network slot.
        onStarted: (handle) => void registry.move(sandboxID, { event: "started", handle }),
      });
    const handle = checkpointID === undefined ? await up() : await checkpoints.holding(checkpointID, up);
    // Where the driver cannot keep memory, the template's start command runs in every new sandbox.
    if (checkpointID === undefined && startup !== undefined) {
      await parts.stages(runtime.name)("startup", () => runStartup(handle, runtime, startup, { env, user, workdir }));
    }
    const warm = registry.get(sandboxID) ?? fail("SANDBOX_START_FAILED", "the sandbox ended while it was started");
    undo.move(); // From here on the sandbox owns its parts.
    return warm;
  } catch (error) {
    parts.log.warn({ err: error, sandboxID, template: template.templateID }, "a sandbox could not be started");
    throw asFailure(error);
  }
}
