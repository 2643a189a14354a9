// The schema of the metadata server's settings; config/default.toml explains them.
import { loadConfig } from "@svc/kit/config.ts";
import { listenAddress } from "@svc/kit/listen.ts";
import { logLevels } from "@svc/kit/log.ts";
import { z } from "zod";

const count = (least: number, most: number) => z.number().int().min(least).max(most);

/** An answered change survives nothing, the end of the process, or that of the machine. */
export const durabilities = ["memory", "process", "disk"] as const;

export const metadataSettings = z.object({
  metadata: z
    .object({
      listen: listenAddress,
      log_level: z.enum(logLevels),
      path: z.string().regex(/^\/[^?#\s]*$/, "expected a path that begins with a slash"),
      durability: z.enum(durabilities),
      max_value_bytes: count(1, 1 << 30),
      max_keys: count(1, 1 << 28),
      max_total_bytes: count(1, Number.MAX_SAFE_INTEGER),
      max_lease_ms: count(1, 365 * 86_400_000),
      gone_client_seconds: count(0, 86_400),
      max_connections: count(1, 1_000_000),
      max_buffered_bytes: count(1, Number.MAX_SAFE_INTEGER),
    })
    .refine(({ max_value_bytes, max_buffered_bytes }) => max_buffered_bytes >= max_value_bytes, {
      path: ["max_buffered_bytes"],
      message: "expected max_value_bytes or more: a value is buffered as a whole while it arrives",
    }),
});

export type MetadataSettings = z.output<typeof metadataSettings>["metadata"];
export type Durability = MetadataSettings["durability"];

const flagNames = { listen: "metadata.listen", path: "metadata.path", durability: "metadata.durability", "log-level": "metadata.log_level" };
const about = "keeps the records of transfer engines: GET, PUT and DELETE of PATH?key=KEY. No authentication: keep it inside.";

/** @throws SETTING_INVALID. `svc up` parses flags with it, too, before it starts anything. */
export const load = (argv: readonly string[]) => loadConfig({ server: "metadata", schema: metadataSettings, flagNames, argv, about });
