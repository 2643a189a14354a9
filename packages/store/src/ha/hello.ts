// What two masters say of themselves at the beginning of a stream.
import { z } from "zod";
import { member } from "./leadership.ts";
import { processIdentity } from "./process-identity.ts";

/** Of the log's records: a standby understands its own and all before it. */
export const LOG_FORMAT = 2;

export const standbyHello = z.object({
  clusterID: z.string().max(256),
  member,
  format: z.number().int().min(1),
  /** Whether it keeps the records of clients' disks: a log with them is of another format. */
  offload: z.boolean().default(false),
  /** Whether it keeps the records of NOF segments: a log with them is of another format. */
  nof: z.boolean().default(false),
  /** The folder that clients share; a log that knows one is of another format. */
  folder: z.string().max(4096).default(""),
  /** Where the leader asks for keys: one that may do everything. */
  token: z.string().max(4096).optional(),
});
export type StandbyHello = z.output<typeof standbyHello>;

export const leaderHello = z.object({ member, process: processIdentity });
export type LeaderHello = z.output<typeof leaderHello>;

/** Undefined where the text is not one. */
export function parsed<T>(shape: z.ZodType<T>, text: string): T | undefined {
  try {
    return shape.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
