// Checkpoints a running sandbox, if its driver supports that and the node can start its envd again.
import { fail } from "@svc/contract/failures.ts";
import type { CheckpointInfo, Checkpoints } from "../../records/checkpoints.ts";
import type { RunningRecord } from "../../records/registry.ts";
import type { CheckpointKind } from "../../runtime/runtime.ts";
import type { Images } from "../../template/images.ts";
import type { Drivers } from "./drivers.ts";
import type { Stages } from "./node-metrics.ts";

export type CheckpointParts = {
  readonly drivers: Pick<Drivers, "named">;
  readonly checkpoints: Pick<Checkpoints, "take">;
  readonly images: Pick<Images, "groundOf">;
  readonly stages: Stages;
};

/** With `isKept` the checkpoint may outlive a change of the template's files, so it records their checksums and is refused on others (I22). */
export type CheckpointRequest = { readonly checkpointID: string; readonly kind: CheckpointKind; readonly isKept: boolean };

export interface Checkpointer {
  /** @throws CHECKPOINT_UNAVAILABLE when the driver cannot do it, or the record lacks the envd that a restore needs. */
  check(record: RunningRecord, kind: CheckpointKind): void;
  /**
   * Returns when the checkpoint is complete; the sandbox then continues, unless it was frozen before. @throws CHECKPOINT_FAILED, DISK_FULL; then
   * nothing is left.
   */
  take(record: RunningRecord, request: CheckpointRequest): Promise<CheckpointInfo>;
}

export function openCheckpointer({ drivers, checkpoints, images, stages }: CheckpointParts): Checkpointer {
  return {
    check({ sandboxID, envd, status }, kind) {
      const runtime = drivers.named(status.handle.runtime);
      if (!runtime.checkpoints.has(kind)) {
        fail(
          "CHECKPOINT_UNAVAILABLE",
          kind === "memory" && runtime.checkpoints.has("filesystem")
            ? `the ${runtime.name} driver cannot keep the memory of sandbox '${sandboxID}': pause or snapshot its files alone (--files-only; memory: false), or use the gvisor driver`
            : `the ${runtime.name} driver cannot keep the ${kind} of sandbox '${sandboxID}'`,
        );
      }
      if (envd === "") {
        fail(
          "CHECKPOINT_UNAVAILABLE",
          `sandbox '${sandboxID}' was started by an earlier version of svc, which did not record what a checkpoint needs; create a new sandbox to pause, fork or snapshot`,
        );
      }
    },
    take({ templateID, image, envd, envdVersion, initKey, status }, { checkpointID, kind, isKept }) {
      const { handle } = status;
      const runtime = drivers.named(handle.runtime);
      const origin = { templateID, envd, envdVersion, initKey, rootfs: isKept ? images.groundOf(image) : undefined, isKept };
      return stages(runtime.name)("checkpoint", () =>
        checkpoints.take(checkpointID, kind, runtime.name, (into) => runtime.checkpoint(handle, { ...into, isBrief: isKept }), origin),
      );
    },
  };
}
