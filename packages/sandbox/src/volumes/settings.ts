// The settings of section [volumes].
import { isAbsolute, join } from "node:path";
import { z } from "zod";

const MAX_MB = 1 << 24;

export const volumesSettings = z.object({
  directory: z.union([z.literal(""), z.string().refine(isAbsolute, "expected an absolute path")]),
  size_mb: z.number().int().min(1).max(MAX_MB),
  max_size_mb: z.number().int().min(1).max(MAX_MB),
  max_volumes: z.number().int().min(1).max(10_000),
});
export type VolumesSettings = z.output<typeof volumesSettings>;

export function volumesDirectory(home: string, { directory }: VolumesSettings): string {
  return directory === "" ? join(home, "volumes") : directory;
}
