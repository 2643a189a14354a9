// The settings of a gateway and their bounds; config/default.toml explains them.
import { BEAT_MS } from "@svc/contract/cluster.ts";
import { loadConfig } from "@svc/kit/config.ts";
import { consoleSettings } from "@svc/kit/console/settings.ts";
import { etcdEndpoints } from "@svc/kit/etcd/endpoints.ts";
import { listenAddress } from "@svc/kit/listen.ts";
import { logLevels } from "@svc/kit/log.ts";
import { peersFlagNames, peersSettings } from "@svc/kit/peers/settings.ts";
import { tlsFlagNames, tlsSettings } from "@svc/kit/tls/settings.ts";
import { z } from "zod";
import { strategies } from "./place/place.ts";

const nodeURL = z
  .string()
  .regex(/^https?:\/\/[^/?#@\s]+\/?$/, "expected http://HOST:PORT or https://HOST:PORT")
  .transform((text) => text.replace(/\/$/, ""));

export const gatewaySettings = z.object({
  gateway: z.object({
    listen: listenAddress,
    metrics_listen: listenAddress,
    log_level: z.enum(logLevels),
    nodes: z
      .array(nodeURL)
      .max(1_000)
      .refine((urls) => new Set(urls).size === urls.length, "names a node twice"),
    brand: z.array(z.string().regex(/^[a-z][a-z0-9]{0,30}$/, "brand words are lower-case letters and digits")).min(1),
    placement: z.enum(strategies),
    memory_overcommit: z.number().min(0.1).max(1_000),
    memory_share: z.number().min(0.05).max(1),
    scale_target: z.number().min(0.1).max(1),
    scale_in_seconds: z.number().int().min(1).max(86_400),
    scale_min_nodes: z.number().int().min(1).max(10_000),
    queue: z.number().int().min(0).max(100_000),
    queue_timeout_seconds: z.number().int().min(1).max(3_600),
    node_silence_ms: z
      .number()
      .int()
      .min(2 * BEAT_MS)
      .max(60_000),
    max_connections: z.number().int().min(16).max(100_000),
    max_connections_per_address: z.number().int().min(8).max(100_000),
  }),
  console: consoleSettings,
  peers: peersSettings,
  tls: tlsSettings,
  cluster: z.object({ etcd: etcdEndpoints, name: z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/, "expected a-z, 0-9 and '-', 63 characters or fewer") }).loose(),
  proxy: z.object({ domains: z.array(z.string().regex(/^[a-z0-9.-]+(:\d{1,5})?$/, "domains are lower-case, without a scheme")) }).loose(),
});

export type GatewaySettings = z.output<typeof gatewaySettings>["gateway"];

const flagNames = {
  listen: "gateway.listen",
  console: "console.mode",
  "metrics-listen": "gateway.metrics_listen",
  nodes: "gateway.nodes",
  etcd: "cluster.etcd",
  brand: "gateway.brand",
  "log-level": "gateway.log_level",
  ...tlsFlagNames,
  ...peersFlagNames,
};
const about =
  "one address in front of several nodes: it places new sandboxes, and leads every request to the node of its sandbox. Give --nodes http://HOST:PORT,http://HOST:PORT for a fixed list of nodes, or --etcd http://HOST:PORT where nodes join and leave by themselves (svc node --etcd).";

/** @throws SETTING_INVALID. `svc up` also parses flags with this function before it starts anything. */
export const load = (argv: readonly string[]) => loadConfig({ server: "gateway", schema: gatewaySettings, flagNames, argv, about });
