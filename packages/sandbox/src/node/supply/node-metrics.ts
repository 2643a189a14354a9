// The node's own metrics: duration of creates and of their stages, number of sandboxes, reasons for their ends.
import type { Log } from "@svc/kit/log.ts";
import type { Metrics } from "@svc/kit/metrics.ts";
import type { Counter, Histogram } from "prom-client";

export type NodeMetrics = {
  readonly createSeconds: Histogram<"source">;
  readonly stageSeconds: Histogram<"runtime" | "stage">;
  readonly resumeSeconds: Histogram<"cause" | "kind">;
  readonly forkSeconds: Histogram;
  readonly ended: Counter<"reason">;
  readonly precreatedTakes: Counter<"source">;
};

export type Census = {
  /** Sandboxes by state. */
  states(): Iterable<string>;
  /** The number of warm sandboxes ready to be claimed, by template, and of precreated sandboxes. */
  pool(): { readonly started: ReadonlyMap<string, number>; readonly precreated: number };
  waiting(): number;
  /** The offset to the deployment's clock; undefined where the node runs alone. */
  clockSkewMs(): number | undefined;
};

export function openNodeMetrics(metrics: Metrics, census: Census): NodeMetrics {
  metrics.gauge("svc_node_sandboxes", "Sandboxes by state", ["state"], (gauge) => {
    gauge.reset();
    for (const [state, count] of tally(census.states())) gauge.set({ state }, count);
  });
  metrics.gauge("svc_node_pool_sandboxes", "Warm sandboxes ready to be claimed, by template", ["template"], (gauge) => {
    gauge.reset();
    for (const [template, count] of census.pool().started) gauge.set({ template }, count);
  });
  metrics.gauge("svc_node_creates_waiting", "Starts that wait to be admitted", [], (gauge) => gauge.set(census.waiting()));
  metrics.gauge("svc_node_clock_skew_seconds", "This node's clock is so far ahead of the deployment's; negative: behind", [], (gauge) => {
    gauge.reset();
    const skewMs = census.clockSkewMs();
    if (skewMs !== undefined) gauge.set(skewMs / 1000);
  });
  metrics.gauge("svc_node_precreated", "Precreated sandboxes ready for a resume, a fork or a start", [], (gauge) => gauge.set(census.pool().precreated));
  return {
    createSeconds: metrics.seconds("svc_node_create_seconds", "Create, from its request to its answer; source: pool or start", ["source"]),
    stageSeconds: metrics.seconds("svc_node_stage_seconds", "Stages of a sandbox's start and end", ["runtime", "stage"]),
    resumeSeconds: metrics.seconds("svc_node_resume_seconds", "Resume, from the lock until envd answers", ["cause", "kind"]),
    forkSeconds: metrics.seconds("svc_node_fork_seconds", "Fork, from its request until every child is there or failed", []),
    precreatedTakes: metrics.counter("svc_node_precreated_requested_total", "Starts that a precreated sandbox would do for, by whether one stood ready", [
      "source",
    ]),
    ended: metrics.counter("svc_node_sandboxes_ended_total", "Sandboxes that ended, by reason", ["reason"]),
  };
}

/** Runs a stage of a sandbox's start or end, and times it. */
export type Stages = (runtime: string) => <T>(stage: string, work: () => Promise<T>) => Promise<T>;

export function openStages({ stageSeconds }: Pick<NodeMetrics, "stageSeconds">, log: Log): Stages {
  return (runtime) => async (stage, work) => {
    log.debug({ stage }, "stage begins");
    const end = stageSeconds.startTimer({ runtime, stage });
    try {
      return await work();
    } finally {
      end();
    }
  };
}

function tally(names: Iterable<string>): Map<string, number> {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}
