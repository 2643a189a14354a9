// The node's settings and their allowed values; config/default.toml explains them.

import { BlockList, isIP } from "node:net";
import { loadConfig } from "@svc/kit/config.ts";
import { consoleSettings } from "@svc/kit/console/settings.ts";
import { durabilities } from "@svc/kit/database.ts";
import { etcdEndpoints } from "@svc/kit/etcd/endpoints.ts";
import { listenAddress } from "@svc/kit/listen.ts";
import { logLevels } from "@svc/kit/log.ts";
import { objectsSettings } from "@svc/kit/objects/settings.ts";
import { peersFlagNames, peersSettings } from "@svc/kit/peers/settings.ts";
import { tlsFlagNames, tlsSettings } from "@svc/kit/tls/settings.ts";
import { z } from "zod";
import { SLOTS } from "../network/names.ts";
import { retentionSettings } from "../retention/settings.ts";
import { runtimeNames } from "../runtime/runtime.ts";
import { egressSettings } from "../secrets/settings.ts";
import { snapshotsSettings } from "../snapshot-transfer/settings.ts";
import { templateSettings } from "../template/settings.ts";
import { volumesSettings } from "../volumes/settings.ts";

const cidr = z.string().refine(isCidr, "expected ADDRESS/BITS");

/** The same minimum as a template's: with less memory envd does not start. */
const LEAST_MEMORY_MB = 64;
const count = (least: number, most: number) => z.number().int().min(least).max(most);

export const nodeSettings = z.object({
  node: z.object({
    listen: listenAddress,
    log_level: z.enum(logLevels),
    audit_log: z.string().regex(/^[\w.-]*$/, "expected the name of a file, without a folder"),
    deployment_secret_file: z.string(),
    durability: z.enum(durabilities),
    labels: z.array(z.string().regex(/^[A-Za-z0-9][\w./-]{0,62}=[\w./:-]{0,200}$/, "expected NAME=VALUE")).max(64),
    brand: z.array(z.string().regex(/^[a-z][a-z0-9]{0,30}$/, "brand words are lower-case letters and digits")).min(1),
  }),
  sandbox: z.object({
    access_token_hash_seed: z.string(),
    runtime: z.enum(["auto", ...runtimeNames]),
    cpu_count: count(0, 1024),
    memory_mb: count(0, 1 << 24).refine((megabytes) => megabytes === 0 || megabytes >= LEAST_MEMORY_MB, `expected 0 or at least ${LEAST_MEMORY_MB}`),
    disk_size_mb: count(0, 1 << 24),
    pids: count(16, 4_000_000),
    max_timeout_seconds: count(1, 7 * 24 * 3600),
    auto_resume_min_timeout_seconds: count(1, 7 * 24 * 3600),
    idle_pause_seconds: count(0, 24 * 3600),
    idle_pause_below_memory_mb: count(0, 1 << 24),
    // Every sandbox has an address of its own, and there are SLOTS of them.
    max_sandboxes: count(1, SLOTS),
    start_concurrency: count(1, 256),
    start_queue: count(0, 100_000),
    start_timeout_seconds: count(1, 3600),
    on_copy_timeout_seconds: count(1, 600),
  }),
  pool: z.object({
    size: count(0, 10_000),
    templates: z.array(z.string().regex(/^[^=\s]+=\d{1,5}$/, "expected TEMPLATE=NUMBER")),
    refill_concurrency: count(1, 64),
    precreated: count(0, 100),
  }),
  network: z.object({
    subnet: z.union([z.literal(""), cidr]),
    denied_cidrs: z.array(cidr),
    proxy_cidrs: z.array(cidr),
    dns: z.array(z.string()),
    dns_queries_per_second: count(1, 100_000),
    pool_size: count(0, 1000),
  }),
  egress: egressSettings,
  template: templateSettings,
  volumes: volumesSettings,
  retention: retentionSettings,
  cluster: z.object({
    etcd: etcdEndpoints,
    name: z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/, "expected a-z, 0-9 and '-', 63 characters or fewer"),
    advertise: z.union([z.literal(""), z.url({ protocol: /^https?$/ })]),
    lease_seconds: count(2, 3600),
    dead_after_seconds: count(1, 24 * 3600),
  }),
  snapshots: snapshotsSettings,
  objects: objectsSettings,
  console: consoleSettings,
  peers: peersSettings,
  tls: tlsSettings,
  proxy: z.object({
    domains: z.array(z.string().regex(/^[a-z0-9.-]+(:\d{1,5})?$/, "domains are lower-case, without a scheme")),
    max_connections: count(16, 100_000),
    max_connections_per_address: count(8, 100_000),
    drop_key_as_bearer: z.boolean(),
    output_mb_per_second: count(0, 100_000),
  }),
});

const flagNames = {
  listen: "node.listen",
  console: "console.mode",
  etcd: "cluster.etcd",
  brand: "node.brand",
  "log-level": "node.log_level",
  runtime: "sandbox.runtime",
  ...tlsFlagNames,
  ...peersFlagNames,
};
const about = `runs sandboxes on this machine and serves the E2B API and the proxy on one port.
  --destroy-all                   ends every sandbox of this home, also what its deployment has of them, and exits; needs the node's own settings of etcd and object storage
  --leave-exported                with --destroy-all: paused sandboxes in object storage stay, for other nodes to resume`;

/** @throws SETTING_INVALID. `svc up` also parses flags with it, before it starts any server. */
export const load = (argv: readonly string[]) => loadConfig({ server: "node", schema: nodeSettings, flagNames, argv, about });

export type NodeSettings = z.output<typeof nodeSettings>;

function isCidr(text: string): boolean {
  const [address = "", bits = ""] = text.split("/");
  const family = isIP(address);
  if (family === 0 || !/^\d{1,3}$/.test(bits) || Number(bits) > (family === 4 ? 32 : 128)) return false;
  new BlockList().addSubnet(address, Number(bits), family === 4 ? "ipv4" : "ipv6");
  return true;
}

/** ["base=8"] → { base: 8 } */
export function poolSizes(settings: NodeSettings): Map<string, number> {
  return new Map(
    settings.pool.templates.map((entry) => {
      const at = entry.lastIndexOf("=");
      return [entry.slice(0, at), Number(entry.slice(at + 1))];
    }),
  );
}
