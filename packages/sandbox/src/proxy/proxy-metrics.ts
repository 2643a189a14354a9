// What the proxy counts: requests by target and class of status, connections, bytes.
import type { Metrics } from "@svc/kit/metrics.ts";
import type { Front } from "@svc/kit/proxy/front.ts";
import type { UpstreamPool } from "@svc/kit/proxy/target.ts";

export const targetKinds = ["control", "envd", "application"] as const;
const codeClasses = ["aborted", "1xx", "2xx", "3xx", "4xx", "5xx"] as const;

export class ProxyMetrics {
  readonly #observers: { observe(seconds: number): void }[];

  constructor(metrics: Metrics) {
    const seconds = metrics.seconds("svc_proxy_request_seconds", "From a request's head to the last byte of its response; target none: answered by the proxy.", ["target", "code"]);
    this.#observers = ["none", ...targetKinds].flatMap((target) => codeClasses.map((code) => seconds.labels({ target, code })));
  }

  /** `kind` indexes `targetKinds`, -1 for none; `status` 0 when the client left first. */
  observe(kind: number, status: number, ms: number): void {
    this.#observers[(kind + 1) * codeClasses.length + Math.floor(status / 100)]?.observe(ms / 1000);
  }
}

/** Gauges and counters that are read off when somebody asks. */
export function watch(metrics: Metrics, front: Front, pool: UpstreamPool): void {
  const bytes = metrics.counter("svc_proxy_bytes_total", "Bytes read: in from clients, out from sandboxes and the control plane towards them.", ["direction"]);
  let seenIn = 0;
  let seenOut = 0;
  metrics.gauge("svc_proxy_connections", "Open connections of the proxy.", ["side"], (gauge) => {
    gauge.set({ side: "client" }, front.connectionCount);
    gauge.set({ side: "upstream" }, pool.openCount);
    bytes.inc({ direction: "in" }, front.bytesIn - seenIn);
    bytes.inc({ direction: "out" }, pool.bytesIn - seenOut);
    seenIn = front.bytesIn;
    seenOut = pool.bytesIn;
  });
}
