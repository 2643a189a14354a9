// Starts a sandbox on a network slot of its own, fresh or from a checkpoint, and waits until its envd answers.
import { Failure } from "@svc/contract/failures.ts";
import { agentOf } from "../../agent/binary.ts";
import { untilHealthy } from "../../agent/health.ts";
import type { InitKeys } from "../../agent/init-keys.ts";
import { type EgressPolicy, openEgress, sameEgress } from "../../egress/policy.ts";
import type { NetworkSlot, Networks } from "../../network/networks.ts";
import type { Checkpoints } from "../../records/checkpoints.ts";
import type { SandboxRecord } from "../../records/state.ts";
import type { Precreated, Runtime, RuntimeHandle, VolumeReference } from "../../runtime/runtime.ts";
import type { Images } from "../../template/images.ts";
import type { Volumes } from "../../volumes/open-volumes.ts";
import type { Stages } from "./node-metrics.ts";

const ENVD_HEALTHY_MS = 30_000;

export type BringUpParts = {
  readonly home: string;
  /** The keys by which envd recognizes its node. */
  readonly initKeys: Pick<InitKeys, "unnamed">;
  readonly networks: Networks | undefined;
  readonly checkpoints: Pick<Checkpoints, "find" | "verify">;
  readonly images: Pick<Images, "ready">;
  readonly volumes: Pick<Volumes, "mounted">;
  readonly stages: Stages;
};

export type BringUp = {
  readonly record: Pick<SandboxRecord, "sandboxID" | "directory" | "image" | "limits" | "envd" | "initKey">;
  readonly runtime: Runtime;
  /** The value of /proc/sys/kernel/random/boot_id inside the sandbox. */
  readonly guestBootID: string;
  readonly checkpointID: string | undefined;
  /** Skips the checksums: this process has just written the checkpoint. */
  readonly isVerified?: boolean | undefined;
  /** Only the checkpoint's files are wanted: its programs will not continue, so any processor will do. */
  readonly isForFiles?: boolean | undefined;
  readonly egress: EgressPolicy;
  /** The volumes to mount. */
  readonly volumes?: readonly VolumeReference[] | undefined;
  /** The precreated sandbox to start in; the caller owns it until start() succeeds. */
  readonly precreated?: Precreated | undefined;
  /** Reports the attached network slot, which the caller detaches if the start fails. */
  readonly onSlot: (slot: NetworkSlot) => void;
  /** Called once the first process runs; a later step may still fail. */
  readonly onStarted?: (handle: RuntimeHandle) => void;
};

/** @throws SANDBOX_START_FAILED, SNAPSHOT_DAMAGED; the caller then removes the parts that exist. */
export async function bringUp(parts: BringUpParts, asked: BringUp): Promise<RuntimeHandle> {
  const { record, runtime, guestBootID, checkpointID, isVerified, isForFiles = false, egress, volumes = [], precreated, onSlot, onStarted } = asked;
  const { sandboxID, directory, image, limits, envd, initKey = parts.initKeys.unnamed } = record;
  const stage = parts.stages(runtime.name);
  const from = checkpointID === undefined ? undefined : await parts.checkpoints.find(checkpointID);
  await parts.images.ready(image);
  const mounted = volumes.length === 0 ? [] : await stage("volumes", () => parts.volumes.mounted(volumes));
  // I12: checksums are computed while the runtime reads the same files, and awaited before the handle is returned.
  const verified = isVerified === true || from === undefined ? undefined : parts.checkpoints.verify(from.checkpointID, !isForFiles);
  verified?.catch(() => undefined);
  const network = await stage("network", () => attach(parts, egress, precreated));
  if (network !== undefined) onSlot(network);
  const start = () =>
    runtime.start({
      runtimeID: sandboxID,
      directory,
      image,
      limits,
      hostname: sandboxID,
      bootID: guestBootID,
      network,
      envd: agentOf(parts.home, envd, initKey),
      precreated,
      ...(mounted.length === 0 ? {} : { volumes: mounted }),
      ...(from === undefined ? {} : { from: { directory: from.directory, kind: from.kind, isForFiles } }),
    });
  const handle = await stage(from === undefined ? "runtime" : "restore", start).catch(async (error: unknown) => {
    // Damage is the likely cause of a failed restore, so SNAPSHOT_DAMAGED takes precedence.
    await verified;
    throw error;
  });
  if (onStarted !== undefined) await stage("started", async () => onStarted(handle));
  await verified;
  await stage("envd", () => untilHealthy(handle, ENVD_HEALTHY_MS, () => runtime.isAlive(handle))).catch(async (error: unknown) => {
    if (runtime.isAlive(handle) || (await runtime.deathReason(handle)) !== "oom") throw error;
    throw new Failure("SANDBOX_START_FAILED", `the sandbox needed more than its ${limits.memoryMB} MB of memory before envd answered`, { cause: error });
  });
  return handle;
}

/** A precreated sandbox already has a slot, with the default egress policy; only another policy has to be set. */
async function attach({ networks }: BringUpParts, egress: EgressPolicy, precreated: Precreated | undefined): Promise<NetworkSlot | undefined> {
  if (precreated === undefined) return networks?.attach(egress);
  const { network } = precreated.handle;
  if (network !== undefined && !sameEgress(egress, openEgress)) await networks?.setPolicy(network, egress);
  return network;
}
