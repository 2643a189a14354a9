// Compares a migration with the object's route: it is done, still possible, or contradicted.
import type { Route } from "@svc/store/rpc/shapes.ts";
import type { MigrationRequest, Verdict } from "./task.ts";

const COMPLETE = 3;

/** `route` is undefined if the object does not exist. Every complete replica counts, even while its client does not ping. */
export function verdictOf({ mode, source_segment, target_segments }: MigrationRequest, route: Route | undefined): Verdict {
  if (route === undefined) return { is: "conflict", why: "the object is not there any more" };
  const whole = new Set(route.replicas.filter(({ status }) => status === COMPLETE).map(({ segment }) => segment));
  const source = whole.has(source_segment);
  const there = target_segments.filter((segment) => whole.has(segment));
  return mode === "copy" ? copyVerdict(source, there, target_segments) : moveVerdict(source, there.length > 0);
}

function copyVerdict(source: boolean, there: readonly string[], targets: readonly string[]): Verdict {
  if (!source) return { is: "conflict", why: "the route has no replica in the source segment any more" };
  if (there.length === targets.length) return { is: "done" };
  if (there.length > 0) return { is: "conflict", why: `the route has replicas in some of the target segments: ${there.join(", ")}` };
  return { is: "open" };
}

function moveVerdict(source: boolean, target: boolean): Verdict {
  if (source && target) return { is: "conflict", why: "the route has a replica in the source and in the target segment" };
  if (target) return { is: "done" };
  return source ? { is: "open" } : { is: "conflict", why: "the route lost the source replica before the target became visible" };
}
