// The settings a node reads, and what each may be; config/default.toml explains them.
import { BlockList, isIP } from "node:net";
import { durabilities } from "@svc/kit/database.ts";
import { listenAddress } from "@svc/kit/listen.ts";
import { logLevels } from "@svc/kit/log.ts";
import { z } from "zod";
import { SLOTS } from "../network/names.ts";
import { runtimeNames } from "../runtime/runtime.ts";
import { templateSettings } from "../template/settings.ts";

const cidr = z.string().refine(isCidr, "asked for ADDRESS/BITS");

/** Whole numbers within these bounds. */
const count = (least: number, most: number) => z.number().int().min(least).max(most);

export const nodeSettings = z.object({
  node: z.object({
    listen: listenAddress,
    log_level: z.enum(logLevels),
    audit_log: z.string().regex(/^[\w.-]*$/, "asked for a file's name, without a folder"),
    durability: z.enum(durabilities),
    brand: z.array(z.string().regex(/^[a-z][a-z0-9]{0,30}$/, "brand words are lower-case letters and digits")).min(1),
  }),
  sandbox: z.object({
    access_token_hash_seed: z.string(),
    runtime: z.enum(["auto", ...runtimeNames]),
    cpu_count: count(0, 1024),
    memory_mb: count(0, 1 << 24),
    disk_size_mb: count(0, 1 << 24),
    pids: count(16, 4_000_000),
    max_timeout_seconds: count(1, 7 * 24 * 3600),
    auto_resume_min_timeout_seconds: count(1, 7 * 24 * 3600),
    // Each has an address of its own.
    max_sandboxes: count(1, SLOTS),
    start_concurrency: count(1, 256),
    start_queue: count(0, 100_000),
    start_timeout_seconds: count(1, 3600),
    on_copy_timeout_seconds: count(1, 600),
  }),
  pool: z.object({
    size: count(0, 10_000),
    templates: z.array(z.string().regex(/^[^=\s]+=\d{1,5}$/, "asked for TEMPLATE=NUMBER")),
    refill_concurrency: count(1, 64),
  }),
  network: z.object({
    subnet: z.union([z.literal(""), cidr]),
    denied_cidrs: z.array(cidr),
    dns: z.array(z.string()),
    dns_queries_per_second: count(1, 100_000),
    pool_size: count(0, 1000),
  }),
  template: templateSettings,
  proxy: z.object({
    domains: z.array(z.string().regex(/^[a-z0-9.-]+(:\d{1,5})?$/, "domains are lower-case, without a scheme")),
    max_connections: count(16, 100_000),
    max_connections_per_address: count(8, 100_000),
  }),
});

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
