// Whether a precreated sandbox may be used for a start: only where both agree in all that is fixed when it is made.
import type { PrecreatedKind } from "./runtime.ts";

/** The same for two kinds that agree in all, whatever made them. */
export function keyOfKind({ image, limits, envd, program }: PrecreatedKind): string {
  const { cpuCount, memoryMB, diskSizeMB, pids } = limits;
  const env = Object.entries(envd.env).sort(([one], [other]) => (one < other ? -1 : 1));
  return JSON.stringify([program, image.rootfs, image.binds, cpuCount, memoryMB, diskSizeMB, pids, envd.binary, envd.args, env]);
}
