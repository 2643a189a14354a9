// Decides whether a precreated sandbox fits a start: both must agree in everything that is fixed at creation.
import type { PrecreatedKind } from "./runtime.ts";

/** Returns the same key for two kinds exactly if they agree in everything. */
export function keyOfKind({ image, limits, envd, program }: PrecreatedKind): string {
  const { cpuCount, memoryMB, diskSizeMB, pids } = limits;
  const env = Object.entries(envd.env).sort(([one], [other]) => (one < other ? -1 : 1));
  return JSON.stringify([program, image.rootfs, image.binds, cpuCount, memoryMB, diskSizeMB, pids, envd.binary, envd.args, env]);
}
