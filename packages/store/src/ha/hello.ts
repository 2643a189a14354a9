// The greeting of two masters at the beginning of a replication stream.
import { z } from "zod";
import { member } from "./leadership.ts";
import { processIdentity } from "./process-identity.ts";

/** The version of the log's records: a standby understands its own version and all earlier ones. */
export const LOG_FORMAT = 2;

export const standbyHello = z.object({
  clusterID: z.string().max(256),
  member,
  format: z.number().int().min(1),
  /** True if it keeps the records of clients' disks, which change the log's format. */
  offload: z.boolean().default(false),
  /** True if it keeps the records of NOF segments, which change the log's format. */
  nof: z.boolean().default(false),
  /** The shared folder; a log with one has another format. */
  folder: z.string().max(4096).default(""),
  /** An unrestricted key, for a leader that requires one. */
  token: z.string().max(4096).optional(),
});
export type StandbyHello = z.output<typeof standbyHello>;

export const leaderHello = z.object({ member, process: processIdentity });
export type LeaderHello = z.output<typeof leaderHello>;

/** Returns undefined where the text has another shape. */
export function parsed<T>(shape: z.ZodType<T>, text: string): T | undefined {
  try {
    return shape.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
