// The settings of the store's master, and what each may be; config/default.toml explains them.
import { listenAddress } from "@svc/kit/listen.ts";
import { logLevels } from "@svc/kit/log.ts";
import { z } from "zod";

const count = (least: number, most: number) => z.number().int().min(least).max(most);
const ratio = z.number().min(0).max(1);
const DAY_MS = 86_400_000;

export const masterSettings = z.object({
  store: z.object({
    listen: listenAddress,
    log_level: z.enum(logLevels),
    rpc_address: z.string().min(1),
    rpc_port: count(0, 65_535),
    brand: z.array(z.string().regex(/^[a-zA-Z][a-zA-Z0-9_-]{0,30}$/, "brand words are letters and digits")).min(1, "expected at least one brand word"),
    compat: z.boolean(),
    durability: z.enum(["process", "disk"]),
    default_kv_lease_ttl_ms: count(1, DAY_MS),
    default_kv_soft_pin_ttl_ms: count(1, 30 * DAY_MS),
    max_kv_soft_pin_ttl_ms: count(1, 30 * DAY_MS),
    allow_evict_soft_pinned_objects: z.boolean(),
    eviction_ratio: ratio,
    eviction_high_watermark_ratio: ratio,
    client_ttl_seconds: count(1, 86_400),
    suspect_after_ms: count(100, DAY_MS),
    probe_timeout_ms: count(10, 60_000),
    put_start_discard_timeout_seconds: count(1, 86_400),
    put_start_release_timeout_seconds: count(1, 86_400),
    pending_task_timeout_seconds: count(1, 86_400),
    processing_task_timeout_seconds: count(1, 86_400),
    max_total_tasks: count(1, 1_000_000),
    max_retry_attempts: count(0, 1000),
    allocation_strategy: z.enum(["random", "free_ratio_first", "local_first"]),
    enable_multi_tenants: z.boolean(),
    max_frame_bytes: count(1024, 1 << 30),
    max_rpc_connections: count(1, 1_000_000),
    max_buffered_bytes: count(1 << 20, Number.MAX_SAFE_INTEGER),
    half_frame_timeout_seconds: count(1, 86_400),
    log_file_bytes: count(1 << 16, 2 ** 40),
    snapshot_log_bytes: count(1 << 16, 2 ** 40),
    max_http_connections: count(1, 1_000_000),
  }),
});

export type MasterSettings = z.output<typeof masterSettings>["store"];

/** Flags under the names that masters of the field have, and which setting each spells. */
export const masterFlags = {
  listen: "store.listen",
  rpc_port: "store.rpc_port",
  port: "store.rpc_port",
  rpc_address: "store.rpc_address",
  brand: "store.brand",
  compat: "store.compat",
  durability: "store.durability",
  "log-level": "store.log_level",
  default_kv_lease_ttl: "store.default_kv_lease_ttl_ms",
  default_kv_soft_pin_ttl: "store.default_kv_soft_pin_ttl_ms",
  max_kv_soft_pin_ttl: "store.max_kv_soft_pin_ttl_ms",
  allow_evict_soft_pinned_objects: "store.allow_evict_soft_pinned_objects",
  eviction_ratio: "store.eviction_ratio",
  eviction_high_watermark_ratio: "store.eviction_high_watermark_ratio",
  client_ttl: "store.client_ttl_seconds",
  client_live_ttl_sec: "store.client_ttl_seconds",
  put_start_discard_timeout_sec: "store.put_start_discard_timeout_seconds",
  put_start_release_timeout_sec: "store.put_start_release_timeout_seconds",
  pending_task_timeout_sec: "store.pending_task_timeout_seconds",
  processing_task_timeout_sec: "store.processing_task_timeout_seconds",
  max_total_pending_tasks: "store.max_total_tasks",
  max_retry_attempts: "store.max_retry_attempts",
  allocation_strategy: "store.allocation_strategy",
  enable_multi_tenants: "store.enable_multi_tenants",
} as const;
