// The clock difference between this home's running node and its deployment, as the node measured it.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { CLOCK_LIMIT_MS, clockReason } from "@svc/contract/clock.ts";
import { type Check, failed, passed } from "./check.ts";

const ANSWER_MS = 2_000;
const METRIC = /^svc_node_clock_skew_seconds (\S+)$/m;

/** Returns no check if no node of this home serves, or if it runs alone. */
export async function clockChecks(home: string): Promise<Check[]> {
  const text = await metricsOf(home).catch(() => "");
  const seconds = METRIC.exec(text)?.[1];
  if (seconds === undefined) return [];
  const skewMs = Number(seconds) * 1000;
  const says = `${Math.abs(skewMs / 1000).toFixed(1)} s ${skewMs < 0 ? "behind" : "ahead of"} the deployment's`;
  if (Math.abs(skewMs) <= CLOCK_LIMIT_MS) return [passed("clock", says)];
  return [
    failed("clock", clockReason(skewMs), "the node is not ready: it takes no new sandboxes", "set the clock, and keep it by NTP (timedatectl set-ntp true)"),
  ];
}

/** The metrics of the node that runs on this home. */
export async function metricsOf(home: string): Promise<string> {
  const { address } = JSON.parse(readFileSync(join(home, "node.json"), "utf8")) as { address: string };
  return (await fetch(`${address}/metrics`, { signal: AbortSignal.timeout(ANSWER_MS) })).text();
}
