// How many nodes the deployment needs: sampled from the loads that nodes report, for GET /scaling and for the metrics of an autoscaler.
import type { Scaling } from "@svc/contract/nodes.ts";
import type { Metrics } from "@svc/kit/metrics.ts";
import type { Members } from "../members/members.ts";
import type { AdmissionQueue } from "../place/queue.ts";
import { type NodeUse, nodesToDrain, nodesWanted, SteadyWanted, type WantedRules, wantedReasons } from "../place/wanted.ts";

const SAMPLE_MS = 1_000;

export type ScalingParts = {
  readonly members: Pick<Members, "up">;
  readonly queue: Pick<AdmissionQueue, "length">;
  readonly rules: WantedRules;
  /** For how long the estimate must be lower before fewer nodes are wanted. */
  readonly scaleInMs: number;
  readonly metrics: Metrics;
  readonly nowMs: () => number;
};

export function openScaling({ members, queue, rules, scaleInMs, metrics, nowMs }: ScalingParts) {
  const steady = new SteadyWanted(scaleInMs, nowMs);
  const uses = (): NodeUse[] =>
    members.up.flatMap(({ name, load, identity, running }) =>
      load === undefined || identity === undefined
        ? []
        : [
            {
              nodeID: name,
              isDraining: load.isDraining,
              sandboxes: running.size + load.starting,
              maxSandboxes: identity.maxSandboxes,
              memory: load.memory,
            },
          ],
    );
  function sample(): void {
    const nodes = uses();
    // Gateways share the creates about equally, so the others have as many that wait.
    const gateways = Math.max(1, ...members.up.map(({ load }) => load?.gateways ?? 1));
    // Without a node that answers there is nothing to estimate from, and a gateway that just started must not ask for a smaller fleet.
    if (nodes.length > 0) steady.add(nodesWanted(nodes, queue.length * gateways, rules));
  }
  const timer = setInterval(sample, SAMPLE_MS).unref();

  function scaling(): Scaling {
    sample();
    const nodes = uses();
    const serving = nodes.filter(({ isDraining }) => !isDraining).length;
    const { current } = steady;
    const wanted = current?.nodes ?? serving;
    return { wanted, serving, reason: current?.reason ?? "none", by: current?.by ?? {}, drain: current === undefined ? [] : nodesToDrain(nodes, wanted) };
  }
  metrics.gauge("svc_gateway_nodes_wanted", "Nodes that the load needs, for an autoscaler; absent until a node answers", [], (gauge) => {
    sample();
    if (steady.current !== undefined) gauge.set(steady.current.nodes);
  });
  metrics.gauge("svc_gateway_nodes_wanted_by", "Nodes that each reason alone needs; the largest is svc_gateway_nodes_wanted", ["reason"], (gauge) => {
    for (const reason of wantedReasons) if (steady.current !== undefined) gauge.set({ reason }, steady.current.by[reason]);
  });
  return { handler: async () => scaling(), close: () => clearInterval(timer) };
}
