// The settings of the store's admin server; config/default.toml explains them.
import { loadConfig } from "@svc/kit/config.ts";
import { listenAddress } from "@svc/kit/listen.ts";
import { logLevels } from "@svc/kit/log.ts";
import { peersFlagNames, peersSettings } from "@svc/kit/peers/settings.ts";
import { masterAddress } from "@svc/store/client/session/address.ts";
import { z } from "zod";

const count = (least: number, most: number) => z.number().int().min(least).max(most);
const MAX_MASTERS = 16;
const DAY_MS = 86_400_000;

function isMaster(text: string): boolean {
  try {
    masterAddress(text.replace(/^tls:\/\//, ""));
    return true;
  } catch {
    return false;
  }
}

export const adminSettings = z.object({
  store_admin: z.object({
    listen: listenAddress,
    log_level: z.enum(logLevels),
    master: z.array(z.string().refine(isMaster, "expected HOST:PORT of a master's RPC, or tls://HOST:PORT")).max(MAX_MASTERS),
    brand: z.string().regex(/^[a-zA-Z][a-zA-Z0-9_-]{0,30}$/, "a brand word is letters and digits"),
    namespace: z.string().regex(/^[a-zA-Z0-9._-]{1,64}$/, "expected letters, digits, dots, dashes and underscores"),
    metadata: z.string().min(1, "expected embedded, etcd://HOST:PORT or redis://HOST:PORT"),
    access_file: z.string(),
    token_file: z.string(),
    max_body_bytes: count(1024, 1 << 30),
    max_migrations: count(1, 1_000_000),
    migration_max_retries: count(0, 1000),
    migration_retry_base_delay_ms: count(1, DAY_MS),
    migration_retry_max_delay_ms: count(1, DAY_MS),
    migration_poll_interval_ms: count(1, 60_000),
    cold_low_watermark: z.number().min(0).max(1),
  }),
  peers: peersSettings,
});

export type AdminSettings = z.output<typeof adminSettings>["store_admin"];

export const adminFlags = {
  listen: "store_admin.listen",
  master: "store_admin.master",
  brand: "store_admin.brand",
  namespace: "store_admin.namespace",
  "log-level": "store_admin.log_level",
  ...peersFlagNames,
} as const;

const about =
  "copies and moves objects of the cache store between segments on request. Without store_admin.access_file everybody who reaches it may do everything.";

/** @throws SETTING_INVALID. `svc up` also checks its flags with this before it starts anything. */
export const load = (argv: readonly string[]) => loadConfig({ server: "store admin", schema: adminSettings, flagNames: adminFlags, argv, about });
