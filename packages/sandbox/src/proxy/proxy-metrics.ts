// What the proxy counts: requests by target and class of status, connections, bytes.
import type { Metrics } from "@svc/kit/metrics.ts";
import type { Front } from "@svc/kit/proxy/front.ts";
import type { UpstreamPool } from "@svc/kit/proxy/target.ts";
import { type WakeOutcome, type Wakes, wakeOutcomes } from "./wakes.ts";

export const targetKinds = ["control", "envd", "application"] as const;
const codeClasses = ["aborted", "1xx", "2xx", "3xx", "4xx", "5xx"] as const;

const classCount = codeClasses.length;

export class ProxyMetrics {
  readonly #series: { readonly labels: { target: string; code: string }; readonly counts: Float64Array; sum: number }[];
  readonly #bounds: readonly number[];

  constructor(metrics: Metrics) {
    const name = "svc_proxy_request_seconds";
    const help = "From a request's head to the last byte of its response; target none: answered by the proxy.";
    const histogram = metrics.seconds(name, help, ["target", "code"]);
    this.#bounds = [...(histogram as unknown as { upperBounds: readonly number[] }).upperBounds];
    this.#series = ["none", ...targetKinds].flatMap((target) =>
      codeClasses.map((code) => ({ labels: { target, code }, counts: new Float64Array(this.#bounds.length + 1), sum: 0 })),
    );
    // The library hashes labels at each observation, which is a twentieth of what a request may cost; so the counts are
    // kept here, and handed over when somebody asks.
    const get = async () => ({ name, help, type: "histogram", aggregator: "sum", values: this.#values(name) });
    Object.assign(histogram, { get, getForPromString: get });
  }

  /** `kind` indexes `targetKinds`, -1 for none; `status` 0 when the client left first. */
  observe(kind: number, status: number, ms: number): void {
    const series = this.#series[(kind + 1) * classCount + ((status / 100) | 0)];
    if (series === undefined) return;
    const seconds = ms / 1000;
    const bounds = this.#bounds;
    let bucket = 0;
    while (bucket < bounds.length && seconds > (bounds[bucket] as number)) bucket++;
    series.counts[bucket] = (series.counts[bucket] as number) + 1;
    series.sum += seconds;
  }

  #values(name: string): { metricName: string; labels: Record<string, string | number>; value: number }[] {
    return this.#series.flatMap(({ labels, counts, sum }) => {
      const total = counts.reduce((all, count) => all + count, 0);
      if (total === 0) return [];
      let below = 0;
      const buckets = this.#bounds.map((le, index) => ({ metricName: `${name}_bucket`, labels: { le, ...labels }, value: (below += counts[index] as number) }));
      const rest = [
        { metricName: `${name}_bucket`, labels: { le: "+Inf", ...labels }, value: total },
        { metricName: `${name}_sum`, labels, value: sum },
        { metricName: `${name}_count`, labels, value: total },
      ];
      return [...buckets, ...rest];
    });
  }
}

/** Gauges and counters that are read off when somebody asks. */
export function watch(metrics: Metrics, front: Front, pool: UpstreamPool, wakes: Wakes): void {
  let seenIn = 0;
  let seenOut = 0;
  // Registered before the counter, so that it is collected before the counter is read.
  metrics.gauge("svc_proxy_connections", "Open connections of the proxy.", ["side"], (gauge) => {
    gauge.set({ side: "client" }, front.connectionCount);
    gauge.set({ side: "upstream" }, pool.openCount);
    bytes.inc({ direction: "in" }, front.bytesIn - seenIn);
    bytes.inc({ direction: "out" }, pool.bytesIn - seenOut);
    seenIn = front.bytesIn;
    seenOut = pool.bytesIn;
  });
  const bytes = metrics.counter("svc_proxy_bytes_total", "Bytes read: in from clients, out from sandboxes and the control plane towards them.", ["direction"]);
  metrics.gauge("svc_proxy_waiting", "Requests that wait while their sandbox is resumed.", [], (gauge) => gauge.set(wakes.waiting));
}

/** Counts attempts to resume a sandbox for requests, however many requests wait for one. */
export function countWakes(metrics: Metrics): (outcome: WakeOutcome) => void {
  const wakes = metrics.counter("svc_proxy_wakes_total", "Sandboxes resumed, or not, because requests came for them.", ["outcome"]);
  for (const outcome of wakeOutcomes) wakes.inc({ outcome }, 0);
  return (outcome) => wakes.inc({ outcome });
}
