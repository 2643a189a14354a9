// The settings of section [template]: what builds may use, image registries and the bounds of the caches.
import { z } from "zod";

const count = (least: number, most: number) => z.number().int().min(least).max(most);
const registryHost = z.string().regex(/^[A-Za-z0-9.-]+(:\d{1,5})?$/, "expected HOST or HOST:PORT");

const pullRule = z.string().regex(/^[^\s]{1,256}( [A-Za-z0-9][\w./-]{0,62}=[\w./:-]{0,200})*$/, "expected NAME, or NAME LABEL=VALUE");

/** A smaller disk cannot even hold what the start of a sandbox writes. */
export const MIN_DISK_SIZE_MB = 64;

export const templateSettings = z.object({
  registry: z.union([z.literal(""), registryHost]),
  insecure_registries: z.array(registryHost),
  image_start_command: z.boolean(),
  image_mb: count(1, 1 << 30),
  max_disk_size_mb: count(MIN_DISK_SIZE_MB, 1 << 24),
  build_concurrency: count(1, 64),
  build_queue: count(0, 10_000),
  build_timeout_seconds: count(1, 24 * 3600),
  cache_mb: count(0, 1 << 30),
  upload_mb: count(1, 1 << 20),
  build_on_first_use: z.boolean(),
  pull: z.array(pullRule).max(100),
});

export type TemplateSettings = z.output<typeof templateSettings>;
