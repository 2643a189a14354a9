// The settings that the indexer reads, and their valid values; config/default.toml explains them.
import { loadConfig } from "@svc/kit/config.ts";
import { consoleSettings } from "@svc/kit/console/settings.ts";
import { etcdEndpoints } from "@svc/kit/etcd/endpoints.ts";
import { listenAddress } from "@svc/kit/listen.ts";
import { logLevels } from "@svc/kit/log.ts";
import { peersFlagNames, peersSettings } from "@svc/kit/peers/settings.ts";
import { joinRepeated } from "@svc/kit/repeated-flags.ts";
import { z } from "zod";

/** Whole numbers within these bounds. */
const count = (least: number, most: number) => z.number().int().min(least).max(most);

export const indexerSettings = z.object({
  indexer: z.object({
    listen: listenAddress,
    plain_clients: z.boolean(),
    log_level: z.enum(logLevels),
    api_key: z.string().regex(/^[\x21-\x7e]*$/, "expected printable characters without spaces"),
    brand: z.array(z.string().regex(/^[a-zA-Z][a-zA-Z0-9_-]{0,30}$/, "brand words are letters and digits")),
    memory_budget_mb: count(8, 1 << 22),
    hash_seed: count(0, Number.MAX_SAFE_INTEGER),
    registrations_file: z.string(),
    registrations: z.string(),
    discover: z.array(z.string()).max(64),
    forget_seconds: count(1, 604_800),
    etcd: etcdEndpoints,
    shared_name: z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/, "expected a-z, 0-9 and '-', 63 characters or fewer"),
    bootstrap_from: z.union([z.literal(""), z.url({ protocol: /^https?$/, error: "expected http://HOST:PORT" })]),
    replay_timeout_ms: count(10, 600_000),
    reorder_grace_ms: count(0, 60_000),
    quiet_check_ms: count(0, 3_600_000),
    uncertain_seconds: count(0, 86_400),
    silence_seconds: count(1, 86_400),
    snapshot_interval_seconds: count(0, 86_400),
    max_body_bytes: count(1024, 1 << 30),
  }),
  console: consoleSettings,
  peers: peersSettings,
});

const flagNames = {
  listen: "indexer.listen",
  brand: "indexer.brand",
  discover: "indexer.discover",
  etcd: "indexer.etcd",
  "log-level": "indexer.log_level",
  console: "console.mode",
  ...peersFlagNames,
  "memory-budget-mb": "indexer.memory_budget_mb",
};
const about = "reads the KV events of inference engines and stores, and answers which instance holds a prompt's prefix.";

/** @throws SETTING_INVALID. `svc up` also reads flags with it before it starts anything. */
export const load = (argv: readonly string[]) =>
  loadConfig({ server: "indexer", schema: indexerSettings, flagNames, argv: joinRepeated(argv, "discover"), about });

export type IndexerSettings = z.output<typeof indexerSettings>["indexer"];
