// The settings of section [retention].
import { z } from "zod";
import { isRule } from "./rules.ts";

const rules = z.array(z.string().refine(isRule, 'expected a rule such as "age=30d", "count=100 unnamed" or "bytes=50GB label:env=dev"')).max(100);

export const retentionSettings = z.object({
  interval_seconds: z
    .number()
    .int()
    .min(0)
    .max(7 * 24 * 3600),
  snapshots: rules,
  paused: rules,
  builds: rules,
  events_hours: z.number().int().min(1).max(8760),
  events_count: z.number().int().min(1000).max(10_000_000),
  usage_days: z.number().int().min(1).max(3660),
});
export type RetentionSettings = z.output<typeof retentionSettings>;
