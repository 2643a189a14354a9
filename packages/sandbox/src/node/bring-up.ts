// Brings a sandbox's system up on a network slot of its own, anew or from a capture, until its envd answers.

import { ENVD_PORT } from "@svc/contract/envd-http.ts";
import { Failure } from "@svc/contract/failures.ts";
import type { EgressPolicy, NetworkSlot } from "../network/networks.ts";
import type { Runtime, RuntimeHandle } from "../runtime/runtime.ts";
import { untilHealthy } from "./envd.ts";
import { envdPath } from "./envd-binary.ts";
import type { Node } from "./node.ts";
import type { SandboxRecord } from "./state.ts";

const ENVD_HEALTHY_MS = 30_000;

export type BringUp = {
  readonly record: Pick<SandboxRecord, "sandboxID" | "directory" | "image" | "limits" | "envd">;
  readonly runtime: Runtime;
  /** What /proc/sys/kernel/random/boot_id says inside. */
  readonly guestBootID: string;
  readonly captureID: string | undefined;
  /** The capture was written a moment ago and needs no second look. */
  readonly isVerified?: boolean | undefined;
  readonly egress: EgressPolicy;
  /** Whoever undoes a failure detaches it. */
  readonly onSlot: (slot: NetworkSlot) => void;
  /** Its first process runs; what comes next may still fail. */
  readonly onStarted?: (handle: RuntimeHandle) => void;
};

/** @throws SANDBOX_START_FAILED, SNAPSHOT_DAMAGED; what there is of it by then is the caller's to take away. */
export async function bringUp(node: Node, { record, runtime, guestBootID, captureID, isVerified, egress, onSlot, onStarted }: BringUp): Promise<RuntimeHandle> {
  const { sandboxID, directory, image, limits, envd } = record;
  const stage = node.stages(runtime.name);
  const from = captureID === undefined ? undefined : await node.captures.find(captureID);
  await node.images.ready(image);
  // I12. Checksums are reckoned while the runtime reads the same files; nothing damaged is handed over.
  const verified = isVerified === true || from === undefined ? undefined : node.captures.verify(from.captureID);
  verified?.catch(() => undefined);
  const network = await stage("network", async () => node.networks?.attach(egress));
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
      // A restored envd was started like this, too.
      envd: { binary: envdPath(node.home, envd), args: ["-listen", `0.0.0.0:${ENVD_PORT}`, "-init-key", node.initKey.publicKeyBase64], env: {} },
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
