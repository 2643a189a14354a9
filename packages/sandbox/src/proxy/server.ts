// The node's proxy: one listener for the control plane and for every port of every sandbox.
import type { Log } from "@svc/kit/log.ts";
import type { Metrics } from "@svc/kit/metrics.ts";
import type { PreviewNames } from "@svc/kit/proxy/address.ts";
import { proxyNames } from "@svc/kit/proxy/header-ids.ts";
import { type ProxyLimits, proxyLimits } from "@svc/kit/proxy/limits.ts";
import type { NamedKeys } from "@svc/kit/proxy/own-keys.ts";
import { RequestHead } from "@svc/kit/proxy/request-head.ts";
import { RequestMetrics, watchProxy } from "@svc/kit/proxy/request-metrics.ts";
import { UpstreamPool } from "@svc/kit/proxy/target.ts";
import { type Bound, openListeners } from "@svc/kit/tls/listeners.ts";
import type { TlsLimits } from "@svc/kit/tls/secure-front.ts";
import type { ServedCertificates } from "@svc/kit/tls/served.ts";
import type { SandboxDirectory } from "../records/directory.ts";
import { countWakes, targetKinds, watchWakes } from "./proxy-metrics.ts";
import { Router } from "./router.ts";
import { Wakes } from "./wakes.ts";

export type ProxyOptions = {
  readonly listen: { readonly host: string; readonly port: number };
  /** Path of the unix socket on which the control plane listens. */
  readonly control: string;
  readonly directory: SandboxDirectory;
  /** The deployment's key, which no sandbox may see. */
  readonly apiKey: string | (() => string);
  /** Named keys, which no sandbox may see either. */
  readonly keys?: NamedKeys | undefined;
  /** Brand words in the routing and traffic headers; the E2B spellings are always accepted. */
  readonly brands?: readonly string[];
  /** Domains whose names `<port>-<id>.<domain>` lead to sandboxes; `localhost` is always accepted. */
  readonly domains?: readonly string[];
  readonly previews?: PreviewNames;
  readonly dropsKeyAsBearer?: boolean;
  readonly limits?: Partial<ProxyLimits>;
  /** With certificates, `listen` speaks TLS; absent: plain HTTP. */
  readonly certificates?: ServedCertificates | undefined;
  readonly tlsLimits?: Partial<TlsLimits>;
  /** Bound on the output of all commands of one sandbox, which wait beyond it; 0 or absent: no bound. */
  readonly outputBytesPerSecond?: number;
  readonly log: Log;
  readonly metrics: Metrics;
};

export type Proxy = {
  readonly address: Bound;
  /** Where programs of this machine reach it by plain HTTP, also if `address` speaks TLS. */
  readonly local: Bound;
  /**
   * Ends every exchange with a sandbox and forgets its connections. It must be called right after the sandbox left the directory's running ones,
   * before it is stopped or frozen and before its address is reused. Requests of which nothing was passed on are routed again (so they wait for
   * a sandbox that sleeps); others without a response get the 502 "was not found", or `cut_off` if the sandbox moves or is paused. Responses
   * that have begun are cut off such that clients notice; upgraded connections are reset.
   */
  drop(sandboxID: string): void;
  /** Returns the number of requests that a sandbox has received without having begun a response. */
  waitingFor(sandboxID: string): number;
  /** Returns the number of open exchanges and streams with a sandbox, and of all that have begun. */
  trafficOf(sandboxID: string): { readonly open: number; readonly begun: number };
  /** Stops accepting, lets requests in flight end within `limits.drainMs`, then ends them. */
  close(): Promise<void>;
};

export async function openProxy(options: ProxyOptions): Promise<Proxy> {
  const { apiKey, brands = ["svc"], domains = [], log } = options;
  const limits = { ...proxyLimits, ...options.limits };
  const head = new RequestHead(proxyNames(brands), limits.headLines);
  const pool = new UpstreamPool(limits);
  const requests = new RequestMetrics(options.metrics, "svc_proxy_request_seconds", targetKinds);
  const wakes = new Wakes({ directory: options.directory, limits, log, onWake: countWakes(options.metrics) });
  const router = new Router({ ...options, wakes, brands, domains, apiKey: typeof apiKey === "string" ? () => apiKey : apiKey }, head, pool);
  const listeners = openListeners({
    listen: options.listen,
    certificates: options.certificates,
    tlsLimits: options.tlsLimits,
    log,
    metrics: options.metrics,
    limits,
    pool,
    head,
    route: (request, client) => router.route(request, client),
    isOpen: (request) => router.isOpen(request),
    observe: (kind, status, ms) => requests.observe(kind, status, ms),
    onFault: (error) => log.error({ err: error }, "the proxy had an internal error"),
  });
  watchProxy(options.metrics, "svc_proxy", listeners.front, pool);
  watchWakes(options.metrics, wakes);
  const { address, local } = await listeners.listen();
  return {
    address,
    local,
    drop: (sandboxID) => router.drop(sandboxID),
    waitingFor: (sandboxID) => router.waitingFor(sandboxID),
    trafficOf: (sandboxID) => router.trafficOf(sandboxID),
    close: () => listeners.close(),
  };
}
