// Prometheus metrics of one server: it has its own registry, names include units, and labels take few values.
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";

/** The buckets range from 0.1 ms to a minute; all histograms share them, so that they can be compared. */
const secondsBuckets = [0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

export type Metrics = {
  counter<L extends string = never>(name: `svc_${string}_total`, help: string, labels?: readonly L[]): Counter<L>;
  gauge<L extends string = never>(name: `svc_${string}`, help: string, labels?: readonly L[], collect?: (gauge: Gauge<L>) => void | Promise<void>): Gauge<L>;
  seconds<L extends string = never>(name: `svc_${string}_seconds`, help: string, labels?: readonly L[]): Histogram<L>;
  /** A histogram of token counts with buckets of its own. */
  tokens<L extends string = never>(name: `svc_${string}_tokens`, help: string, buckets: readonly number[], labels?: readonly L[]): Histogram<L>;
  text(): Promise<string>;
  /** The same values as data; a histogram's have their own names in `metricName`. */
  values(): Promise<readonly MetricValues[]>;
  readonly contentType: string;
};

export type MetricValues = {
  readonly name: string;
  readonly values: readonly { readonly labels: Readonly<Record<string, string | number | undefined>>; readonly value: number; readonly metricName?: string }[];
};

export function openMetrics(): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const registers = [registry];
  return {
    counter: (name, help, labels = []) => new Counter({ name, help, labelNames: [...labels], registers }),
    gauge: (name, help, labels = [], collect) =>
      new Gauge({
        name,
        help,
        labelNames: [...labels],
        registers,
        ...(collect === undefined
          ? {}
          : {
              collect() {
                return collect(this);
              },
            }),
      }),
    seconds: (name, help, labels = []) => new Histogram({ name, help, labelNames: [...labels], buckets: secondsBuckets, registers }),
    tokens: (name, help, buckets, labels = []) => new Histogram({ name, help, labelNames: [...labels], buckets: [...buckets], registers }),
    text: () => registry.metrics(),
    values: async () => (await registry.getMetricsAsJSON()) as unknown as readonly MetricValues[],
    contentType: registry.contentType,
  };
}
