// Metrics of the node's proxy in addition to its requests: attempts to resume sandboxes, and the requests that wait for them.
import type { Metrics } from "@svc/kit/metrics.ts";
import { type WakeOutcome, type Wakes, wakeOutcomes } from "./wakes.ts";

export const targetKinds = ["control", "envd", "application"] as const;

export function watchWakes(metrics: Metrics, wakes: Wakes): void {
  metrics.gauge("svc_proxy_waiting", "Requests that wait while their sandbox is resumed.", [], (gauge) => gauge.set(wakes.waiting));
}

/** Counts attempts to resume a sandbox for requests; requests that wait for the same attempt count once. */
export function countWakes(metrics: Metrics): (outcome: WakeOutcome) => void {
  const wakes = metrics.counter("svc_proxy_wakes_total", "Waits of requests for a sandbox that was paused or on its way to another node, by how they ended.", [
    "outcome",
  ]);
  for (const outcome of wakeOutcomes) wakes.inc({ outcome }, 0);
  return (outcome) => wakes.inc({ outcome });
}
