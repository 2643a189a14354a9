// The schema of the master's settings; config/default.toml explains them.

import { isIP } from "node:net";
import { loadConfig } from "@svc/kit/config.ts";
import { consoleSettings } from "@svc/kit/console/settings.ts";
import { listenAddress } from "@svc/kit/listen.ts";
import { logLevels } from "@svc/kit/log.ts";
import { peersFlagNames, peersSettings } from "@svc/kit/peers/settings.ts";
import { z } from "zod";

const count = (least: number, most: number) => z.number().int().min(least).max(most);
const ratio = z.number().min(0).max(1);
const DAY_MS = 86_400_000;

const isEndpointList = (text: string) => /^(https?:\/\/)?[^\s;,/]+:\d{1,5}([;,](https?:\/\/)?[^\s;,/]+:\d{1,5})*$/.test(text);

function isCidr(text: string): boolean {
  const [, address = "", bits = ""] = /^([0-9a-fA-F:.]+)\/(\d{1,3})$/.exec(text) ?? [];
  const family = isIP(address);
  return family !== 0 && Number(bits) <= (family === 4 ? 32 : 128);
}

export const masterSettings = z.object({
  store: z
    .object({
      listen: listenAddress,
      log_level: z.enum(logLevels),
      stable_id: z.string().min(1, "expected a name for this master").max(256),
      rpc_address: z.string().min(1),
      rpc_port: count(0, 65_535),
      tls_port: count(0, 65_535),
      plain_clients: z.boolean(),
      access_file: z.string(),
      access_trusted_cidrs: z.array(z.string().refine(isCidr, "expected ADDRESS/BITS, such as 10.0.0.0/8")),
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
      max_leased_ahead_ratio: ratio,
      put_wait_ms: count(0, 10_000),
      enable_offload: z.boolean(),
      offload_on_evict: z.boolean(),
      offload_force_evict: z.boolean(),
      offload_cap_ratio: ratio,
      offload_queue_limit: count(1, 10_000_000),
      promotion_on_hit: z.boolean(),
      promotion_threshold: count(1, 255),
      promotion_max_per_heartbeat: count(1, 1000),
      promotion_queue_limit: count(1, 10_000_000),
      enable_nof: z.boolean(),
      nof_eviction_ratio: ratio,
      nof_eviction_high_watermark_ratio: ratio,
      root_fs_dir: z.string().regex(/^(\/[^\0]{0,1024})?$/, "expected an absolute path, or nothing"),
      global_file_segment_size: z.number().min(0),
      quota_bytes: z.number().min(0),
      enable_disk_eviction: z.boolean(),
      max_frame_bytes: count(1024, 1 << 30),
      max_rpc_connections: count(1, 1_000_000),
      max_buffered_bytes: count(1 << 20, Number.MAX_SAFE_INTEGER),
      half_frame_timeout_seconds: count(1, 86_400),
      log_file_bytes: count(1 << 16, 2 ** 40),
      snapshot_log_bytes: count(1 << 16, 2 ** 40),
      max_http_connections: count(1, 1_000_000),
      enable_kv_events: z.boolean(),
      kv_events_bind_endpoint: z.string(),
      kv_events_backend_id: z.string(),
      kv_events_replay_endpoint: z.string(),
      kv_events_emit_object_key: z.boolean(),
      kv_events_emit_legacy_compat: z.boolean(),
      kv_events_queue_capacity: count(64, 10_000_000),
      kv_events_send_queue_batches: count(1, 1_000_000),
      kv_events_model_name: z.string(),
      kv_events_block_size: z.string(),
      kv_events_dp_rank: z.string(),
      kv_events_additional_salt: z.string(),
      kv_events_lora_name: z.string(),
      kv_events_tenant_id: z.string(),
      enable_ha: z.boolean(),
      etcd_endpoints: z.string(),
      cluster_id: z.string().regex(/^[\w.-]{1,128}$/, "expected a name of letters, digits, '.', '_' and '-'"),
      member_name: z.string().regex(/^[\w.-]{0,128}$/, "expected a name of letters, digits, '.', '_' and '-'"),
      replication: z.enum(["sync", "async"]),
      replication_port: count(0, 65_535),
      advertised_host: z.string(),
      takeover_after_ms: count(100, 60_000),
      standby_timeout_ms: count(100, 60_000),
      resume_log_bytes: count(0, 2 ** 32),
    })
    .superRefine((store, context) => {
      if (store.enable_ha) {
        const wrong = (name: string, message: string) => context.addIssue({ code: "custom", path: [name], message });
        if (!isEndpointList(store.etcd_endpoints)) wrong("etcd_endpoints", "expected HOST:PORT[;HOST:PORT...] of etcd, since enable_ha is on");
        if (store.advertised_host === "" && ["0.0.0.0", "::"].includes(store.rpc_address))
          wrong("advertised_host", "expected this host as clients and other masters reach it, since enable_ha is on and rpc_address is any address");
      }
      if (!store.enable_kv_events) return;
      for (const [name, wanted] of [
        ["kv_events_bind_endpoint", "an endpoint to bind, such as tcp://0.0.0.0:19997"],
        ["kv_events_backend_id", "a name for this cache owner"],
      ] as const)
        if (store[name] === "") context.addIssue({ code: "custom", path: [name], message: `expected ${wanted}, since enable_kv_events is on` });
    }),
  console: consoleSettings,
  peers: peersSettings,
});

export type MasterSettings = z.output<typeof masterSettings>["store"];

/** Maps the flag names of Mooncake's master to the settings. */
export const masterFlags = {
  listen: "store.listen",
  rpc_port: "store.rpc_port",
  port: "store.rpc_port",
  rpc_address: "store.rpc_address",
  "tls-port": "store.tls_port",
  brand: "store.brand",
  compat: "store.compat",
  durability: "store.durability",
  "log-level": "store.log_level",
  console: "console.mode",
  ...peersFlagNames,
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
  enable_offload: "store.enable_offload",
  offload_on_evict: "store.offload_on_evict",
  offload_force_evict: "store.offload_force_evict",
  offload_cap_ratio: "store.offload_cap_ratio",
  offload_queue_limit: "store.offload_queue_limit",
  promotion_on_hit: "store.promotion_on_hit",
  promotion_threshold: "store.promotion_threshold",
  promotion_max_per_heartbeat: "store.promotion_max_per_heartbeat",
  promotion_queue_limit: "store.promotion_queue_limit",
  enable_nof: "store.enable_nof",
  nof_eviction_ratio: "store.nof_eviction_ratio",
  nof_eviction_high_watermark_ratio: "store.nof_eviction_high_watermark_ratio",
  root_fs_dir: "store.root_fs_dir",
  global_file_segment_size: "store.global_file_segment_size",
  quota_bytes: "store.quota_bytes",
  enable_disk_eviction: "store.enable_disk_eviction",
  enable_kv_events: "store.enable_kv_events",
  kv_events_bind_endpoint: "store.kv_events_bind_endpoint",
  kv_events_backend_id: "store.kv_events_backend_id",
  kv_events_replay_endpoint: "store.kv_events_replay_endpoint",
  kv_events_emit_object_key: "store.kv_events_emit_object_key",
  kv_events_emit_legacy_compat: "store.kv_events_emit_legacy_compat",
  kv_events_queue_capacity: "store.kv_events_queue_capacity",
  kv_events_model_name: "store.kv_events_model_name",
  kv_events_block_size: "store.kv_events_block_size",
  kv_events_dp_rank: "store.kv_events_dp_rank",
  kv_events_additional_salt: "store.kv_events_additional_salt",
  kv_events_lora_name: "store.kv_events_lora_name",
  kv_events_tenant_id: "store.kv_events_tenant_id",
  enable_ha: "store.enable_ha",
  etcd_endpoints: "store.etcd_endpoints",
  cluster_id: "store.cluster_id",
  replication: "store.replication",
  name: "store.member_name",
} as const;

const about =
  "knows which client holds which object of the cache store: RPC for clients, HTTP on --listen for people and tools. Without store.access_file everyone who reaches it may do everything.";

/** @throws SETTING_INVALID. `svc up` parses flags with it, too, before it starts anything. */
export const load = (argv: readonly string[]) => loadConfig({ server: "store master", schema: masterSettings, flagNames: masterFlags, argv, about });
