// The gateway's proxy: one listener for clients and a target for each node, with the same parser and splicing as a node's proxy.
import { fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Metrics } from "@svc/kit/metrics.ts";
import type { PreviewNames } from "@svc/kit/proxy/address.ts";
import { ControlPlane } from "@svc/kit/proxy/control-target.ts";
import { proxyNames } from "@svc/kit/proxy/header-ids.ts";
import { type ProxyLimits, proxyLimits } from "@svc/kit/proxy/limits.ts";
import type { NamedKeys } from "@svc/kit/proxy/own-keys.ts";
import { RequestHead } from "@svc/kit/proxy/request-head.ts";
import { RequestMetrics, watchProxy } from "@svc/kit/proxy/request-metrics.ts";
import { Target, UpstreamPool } from "@svc/kit/proxy/target.ts";
import type { Certificates } from "@svc/kit/tls/certificates.ts";
import { type Bound, openListeners } from "@svc/kit/tls/listeners.ts";
import type { Arrivals } from "../members/arrivals.ts";
import type { Fate } from "../members/fate.ts";
import type { Lookups } from "../members/lookups.ts";
import type { Member } from "../members/member.ts";
import type { Members } from "../members/members.ts";
import { NodeTarget } from "./node-target.ts";
import { Router, targetKinds } from "./router.ts";

export type NodeTargets = { readonly pool: UpstreamPool; readonly limits: ProxyLimits; open(member: () => Member): Target };

/** The number of idle connections kept to each node; it is high since a node serves many sandboxes. */
const IDLE_PER_NODE = 256;

export function openNodeTargets(bounds: Partial<ProxyLimits>): NodeTargets {
  const limits = { ...proxyLimits, idlePerTarget: IDLE_PER_NODE, ...bounds };
  const pool = new UpstreamPool(limits);
  return { pool, limits, open: (member) => new Target(pool, new NodeTarget(member)) };
}

export type GatewayProxyOptions = {
  readonly targets: NodeTargets;
  readonly listen: { readonly host: string; readonly port: number };
  /** Path of the unix socket on which the gateway's control plane listens. */
  readonly control: string;
  readonly members: Members;
  readonly lookups: Lookups;
  readonly arrivals: Arrivals;
  readonly fateOf: (member: Member, sandboxID: string) => Fate;
  readonly apiKey: string;
  /** Named keys, which no sandbox may see either. */
  readonly keys: NamedKeys;
  readonly brands: readonly string[];
  readonly domains: readonly string[];
  readonly previews: PreviewNames;
  /** With certificates, `listen` speaks TLS; undefined: plain HTTP. */
  readonly certificates: Certificates | undefined;
  readonly log: Log;
  readonly metrics: Metrics;
};

export type GatewayProxy = {
  readonly address: Bound;
  /** Where programs of this machine reach it by plain HTTP, also if `address` speaks TLS. */
  readonly local: Bound;
  close(): Promise<void>;
};

/** @throws SETTING_INVALID if it cannot listen. */
export async function openGatewayProxy(options: GatewayProxyOptions): Promise<GatewayProxy> {
  const { targets, listen, control, brands, metrics, log } = options;
  const { pool, limits } = targets;
  const head = new RequestHead(proxyNames(brands), limits.headLines);
  const requests = new RequestMetrics(metrics, "svc_gateway_request_seconds", targetKinds);
  const router = new Router({ ...options, control: new Target(pool, new ControlPlane(control)) }, head);
  const listeners = openListeners({
    listen,
    certificates: options.certificates,
    log,
    metrics,
    limits,
    pool,
    head,
    route: (request, client) => router.route(request, client),
    observe: (kind, status, ms) => requests.observe(kind, status, ms),
    onFault: (error) => log.error({ err: error }, "the proxy had an internal error"),
  });
  watchProxy(metrics, "svc_gateway", listeners.front, pool);
  const { address, local } = await listeners.listen().catch((error: NodeJS.ErrnoException) => {
    const why = error.code === "EADDRINUSE" ? "the port is in use" : error.message;
    return fail(
      "SETTING_INVALID",
      `setting gateway.listen: cannot listen on ${listen.host}:${listen.port}: ${why}; choose another port with --listen HOST:PORT`,
      {
        cause: error,
      },
    );
  });
  return { address, local, close: () => listeners.close() };
}
