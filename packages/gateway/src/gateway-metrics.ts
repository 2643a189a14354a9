// The gateway's metrics: nodes by state, outcomes of placement, waiting creates, and lookups of unknown ids.
import type { Metrics } from "@svc/kit/metrics.ts";
import type { Arrivals } from "./members/arrivals.ts";
import type { Lookups } from "./members/lookups.ts";
import type { Members } from "./members/members.ts";
import type { AdmissionQueue } from "./place/queue.ts";
import { type PlaceOutcome, placeOutcomes } from "./serve/create.ts";

export type GatewayMetrics = {
  placed(outcome: PlaceOutcome): void;
  lost(): void;
  /** Called once the parts that these gauges read are open, since those parts already use the counters. */
  watch(members: Members, lookups: Lookups, arrivals: Arrivals, queue: AdmissionQueue, isEmptied: () => boolean): void;
};

export function openGatewayMetrics(metrics: Metrics): GatewayMetrics {
  const placed = metrics.counter("svc_gateway_creates_total", "Creates by how they were placed: first node, a next one, after a wait, or refused with 429", [
    "outcome",
  ]);
  for (const outcome of placeOutcomes) placed.inc({ outcome }, 0);
  const losses = metrics.counter("svc_gateway_node_losses_total", "Times that a node was lost: its stream broke, or it was silent");
  losses.inc(0);
  return {
    placed: (outcome) => placed.inc({ outcome }),
    lost: () => losses.inc(),
    watch(members, lookups, arrivals, queue, isEmptied) {
      metrics.gauge("svc_gateway_nodes", "Nodes by state; refused: their key, seed or name is not what it must be", ["state"], (gauge) => {
        for (const state of ["connecting", "up", "lost", "refused"] as const)
          gauge.set({ state }, members.all.filter((each) => each.status.state === state).length);
      });
      metrics.gauge("svc_gateway_sandboxes", "Sandboxes that this gateway knows, by state", ["state"], (gauge) => {
        gauge.set(
          { state: "running" },
          sum(members, (each) => each.running.size),
        );
        gauge.set(
          { state: "paused" },
          sum(members, (each) => each.paused.size),
        );
      });
      metrics.gauge("svc_gateway_creates_waiting", "Creates in the admission queue", [], (gauge) => gauge.set(queue.length));
      metrics.gauge("svc_gateway_creates_wait_estimate_seconds", "How long a create that comes now would wait while every node is full", [], (gauge) =>
        gauge.set(queue.length === 0 ? 0 : queue.estimatedWaitMs / 1000),
      );
      metrics.gauge("svc_gateway_arrivals", "Paused sandboxes that are being brought to another node for a request", [], (gauge) =>
        gauge.set(arrivals.waiting),
      );
      metrics.gauge("svc_gateway_etcd_emptied", "1 while etcd lacks the deployment's records that this gateway had read there", [], (gauge) =>
        gauge.set(isEmptied() ? 1 : 0),
      );
      metrics.gauge("svc_gateway_lookups", "Lookups at the nodes of ids that no stream has reported", [], (gauge) => gauge.set(lookups.waiting));
    },
  };
}

function sum(members: Members, sizeOf: (member: Members["all"][number]) => number): number {
  return members.all.reduce((total, member) => total + sizeOf(member), 0);
}
