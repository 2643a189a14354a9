// The settings for snapshots; config/default.toml explains them.
import { z } from "zod";

export const snapshotsSettings = z.object({
  durable: z.boolean(),
  import_mb: z
    .number()
    .int()
    .min(1)
    .max(2 ** 30),
});
export type SnapshotsSettings = z.output<typeof snapshotsSettings>;
