// The settings of object storage; config/default.toml explains them.
import { z } from "zod";

export const objectsSettings = z.object({
  url: z.string().regex(/^(file:\/\/\/.+|s3:\/\/[a-z0-9][a-z0-9.-]{1,62}(\/[A-Za-z0-9_./-]*)?)?$/, "expected file:///DIR, s3://BUCKET/PREFIX, or nothing"),
  endpoint: z.string().regex(/^(https?:\/\/[^/?#@]+\/?)?$/, "expected http://HOST:PORT or https://HOST:PORT, without a path"),
  region: z.string().regex(/^[a-z0-9-]{1,64}$/, "regions are lower-case letters, digits and -"),
  path_style: z.boolean(),
  credentials_file: z.string(),
  concurrency: z.number().int().min(1).max(64),
  bandwidth_mb_per_second: z.number().min(0).max(100_000),
  collect_interval_seconds: z
    .number()
    .int()
    .min(0)
    .max(7 * 24 * 3600),
  collect_grace_seconds: z
    .number()
    .int()
    .min(0)
    .max(30 * 24 * 3600),
});

export type ObjectsSettings = z.output<typeof objectsSettings>;
