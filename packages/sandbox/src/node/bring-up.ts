// Brings a sandbox's system up on a network slot of its own, anew or from a checkpoint, until its envd answers.
import { Failure } from "@svc/contract/failures.ts";
import { agentOf } from "../agent/binary.ts";
import { untilHealthy } from "../agent/health.ts";
import type { InitKeys } from "../agent/init-keys.ts";
import { type EgressPolicy, openEgress, sameEgress } from "../egress/policy.ts";
import type { NetworkSlot, Networks } from "../network/networks.ts";
import type { Checkpoints } from "../records/checkpoints.ts";
import type { SandboxRecord } from "../records/state.ts";
import type { Precreated, Runtime, RuntimeHandle } from "../runtime/runtime.ts";
import type { Images } from "../template/images.ts";
import type { Stages } from "./node-metrics.ts";

const ENVD_HEALTHY_MS = 30_000;

export type BringUpParts = {
  readonly home: string;
  /** By which envd knows its nodes. */
  readonly initKeys: Pick<InitKeys, "unnamed">;
  readonly networks: Networks | undefined;
  readonly checkpoints: Pick<Checkpoints, "find" | "verify">;
  readonly images: Pick<Images, "ready">;
  readonly stages: Stages;
};

export type BringUp = {
  readonly record: Pick<SandboxRecord, "sandboxID" | "directory" | "image" | "limits" | "envd" | "initKey">;
  readonly runtime: Runtime;
  /** What /proc/sys/kernel/random/boot_id says inside. */
  readonly guestBootID: string;
  readonly checkpointID: string | undefined;
  /** The checkpoint was written a moment ago and needs no second look. */
  readonly isVerified?: boolean | undefined;
  readonly egress: EgressPolicy;
  /** To go on in; the caller's until it is started. */
  readonly precreated?: Precreated | undefined;
  /** Whoever undoes a failure detaches it. */
  readonly onSlot: (slot: NetworkSlot) => void;
  /** Its first process runs; what comes next may still fail. */
  readonly onStarted?: (handle: RuntimeHandle) => void;
};

/** @throws SANDBOX_START_FAILED, SNAPSHOT_DAMAGED; what there is of it by then is the caller's to take away. */
export async function bringUp(parts: BringUpParts, asked: BringUp): Promise<RuntimeHandle> {
  const { record, runtime, guestBootID, checkpointID, isVerified, egress, precreated, onSlot, onStarted } = asked;
  const { sandboxID, directory, image, limits, envd, initKey = parts.initKeys.unnamed } = record;
  const stage = parts.stages(runtime.name);
  const from = checkpointID === undefined ? undefined : await parts.checkpoints.find(checkpointID);
  await parts.images.ready(image);
  // I12. Checksums are computed while the runtime reads the same files; nothing damaged is handed over.
  const verified = isVerified === true || from === undefined ? undefined : parts.checkpoints.verify(from.checkpointID);
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
      ...(from === undefined ? {} : { from: { directory: from.directory, kind: from.kind } }),
    });
  const handle = await stage(from === undefined ? "runtime" : "restore", start).catch(async (error: unknown) => {
    // A restore that failed because of damage is called by that name.
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

/** A precreated sandbox has its network already, open to all that any sandbox may reach. */
async function attach({ networks }: BringUpParts, egress: EgressPolicy, precreated: Precreated | undefined): Promise<NetworkSlot | undefined> {
  if (precreated === undefined) return networks?.attach(egress);
  const { network } = precreated.handle;
  if (network !== undefined && !sameEgress(egress, openEgress)) await networks?.setPolicy(network, egress);
  return network;
}
