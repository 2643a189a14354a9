// The metrics of a proxy: requests by target and status class, connections, bytes.
import type { Metrics } from "../metrics.ts";
import type { Front } from "./front.ts";
import type { UpstreamPool } from "./target.ts";

const codeClasses = ["aborted", "1xx", "2xx", "3xx", "4xx", "5xx"] as const;

const classCount = codeClasses.length;

export class RequestMetrics {
  readonly #series: { readonly labels: { target: string; code: string }; readonly counts: Float64Array; sum: number }[];
  readonly #bounds: readonly number[];

  /** `kinds`: names of the targets, in the order in which `observe` numbers them. */
  constructor(metrics: Metrics, name: `svc_${string}_seconds`, kinds: readonly string[]) {
    const help = "From a request's head to the last byte of its response; target none: answered by the proxy.";
    const histogram = metrics.seconds(name, help, ["target", "code"]);
    this.#bounds = [...(histogram as unknown as { upperBounds: readonly number[] }).upperBounds];
    this.#series = ["none", ...kinds].flatMap((target) =>
      codeClasses.map((code) => ({ labels: { target, code }, counts: new Float64Array(this.#bounds.length + 1), sum: 0 })),
    );
    // The library hashes labels at each observation, which costs up to a twentieth of a request; so the counts are kept here and passed on at
    // each scrape.
    const get = async () => ({ name, help, type: "histogram", aggregator: "sum", values: this.#values(name) });
    Object.assign(histogram, { get, getForPromString: get });
  }

  /** `kind` indexes the kinds, -1 for none; `status` is 0 if the client left first. */
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

/** Registers gauges and counters that are read at each scrape. */
export function watchProxy(metrics: Metrics, prefix: `svc_${string}`, front: Front, pool: UpstreamPool): void {
  let seenIn = 0;
  let seenOut = 0;
  // The gauge is registered before the counter, so that it is collected before the counter is read.
  metrics.gauge(`${prefix}_connections`, "Open connections of the proxy.", ["side"], (gauge) => {
    gauge.set({ side: "client" }, front.connectionCount);
    gauge.set({ side: "upstream" }, pool.openCount);
    bytes.inc({ direction: "in" }, front.bytesIn - seenIn);
    bytes.inc({ direction: "out" }, pool.bytesIn - seenOut);
    seenIn = front.bytesIn;
    seenOut = pool.bytesIn;
  });
  const bytes = metrics.counter(`${prefix}_bytes_total`, "Bytes read: in from clients, out from their targets towards them.", ["direction"]);
}
