// The node's own metrics: how long creates take and where, how many sandboxes there are, why they ended.
import type { Metrics } from "@svc/kit/metrics.ts";
import type { Counter, Histogram } from "prom-client";

export type NodeMetrics = {
  readonly createSeconds: Histogram<"source">;
  readonly stageSeconds: Histogram<"runtime" | "stage">;
  readonly resumeSeconds: Histogram<"cause" | "kind">;
  readonly forkSeconds: Histogram;
  readonly ended: Counter<"reason">;
};

export type Census = {
  /** Sandboxes by state. */
  states(): Map<string, number>;
  /** Warm sandboxes on the shelf by template. */
  pool(): ReadonlyMap<string, number>;
  waiting(): number;
};

export function openNodeMetrics(metrics: Metrics, census: Census): NodeMetrics {
  metrics.gauge("svc_node_sandboxes", "Sandboxes by state", ["state"], (gauge) => {
    gauge.reset();
    for (const [state, count] of census.states()) gauge.set({ state }, count);
  });
  metrics.gauge("svc_node_pool_sandboxes", "Warm sandboxes ready to be claimed, by template", ["template"], (gauge) => {
    gauge.reset();
    for (const [template, count] of census.pool()) gauge.set({ template }, count);
  });
  metrics.gauge("svc_node_creates_waiting", "Creates that wait for their turn", [], (gauge) => gauge.set(census.waiting()));
  return {
    createSeconds: metrics.seconds("svc_node_create_seconds", "Create, from its request to its answer; source: pool or start", ["source"]),
    stageSeconds: metrics.seconds("svc_node_stage_seconds", "Stages of a sandbox's start and end", ["runtime", "stage"]),
    resumeSeconds: metrics.seconds("svc_node_resume_seconds", "Resume, from its turn until envd answers", ["cause", "kind"]),
    forkSeconds: metrics.seconds("svc_node_fork_seconds", "Fork, from its request until every child is there or failed", []),
    ended: metrics.counter("svc_node_sandboxes_ended_total", "Sandboxes that ended, by reason", ["reason"]),
  };
}
