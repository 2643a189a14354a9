// The answers that a storm's clients got, and what a node must therefore have: sandboxes with their content, snapshots, templates.
import type { Failure } from "@svc/contract/failures.ts";
import type { Operation } from "@svc/contract/operation.ts";
import type { Kind } from "./storm-plan.ts";

export type State = "running" | "paused" | "gone";

export type KnownSandbox = {
  readonly sandboxID: string;
  /** The content of its file and its process; undefined if the client could not write it. */
  mark: string | undefined;
  /** More than one state if an operation failed or its answer was lost; each is acceptable. */
  states: readonly State[];
  /** True if a part that it depends on was killed: it may be gone, with a reason. */
  mortal: boolean;
  /** True while an operation of this round uses it. */
  busy: boolean;
};

export type World = {
  readonly sandboxes: Map<string, KnownSandbox>;
  /** Maps each snapshot to the mark of its source. */
  readonly snapshots: Map<string, string | undefined>;
  /** Maps each template to the marks that its sandboxes may show: that of the newest build, and those of builds with unknown outcome. */
  readonly templates: Map<string, readonly string[]>;
  readonly acknowledged: Record<Kind, number>;
  /** Failures with a documented name and a reason, counted by name. */
  readonly explained: Map<string, number>;
  /** Violations, which must not happen. */
  readonly wrong: string[];
  /** Sources that may have children, and the number of snapshots, whose answers were lost. */
  unknownForks: Set<string>;
  unknownSnapshots: number;
  marks: number;
};

export function emptyWorld(): World {
  const acknowledged = { create: 0, pause: 0, resume: 0, fork: 0, snapshot: 0, build: 0, delete: 0 };
  return {
    sandboxes: new Map(),
    snapshots: new Map(),
    templates: new Map(),
    acknowledged,
    explained: new Map(),
    wrong: [],
    unknownForks: new Set(),
    unknownSnapshots: 0,
    marks: 0,
  };
}

/** The answer was lost with the connection, so the outcome of the request is unknown. */
export function isLost(failure: Failure): boolean {
  return failure.name === "SERVER_UNREACHABLE" && failure.cause !== undefined;
}

/** Counts a refusal; a server error must have a name that its operation lists, and a reason. */
export function judge(world: World, operation: Operation, failure: Failure, during: string): void {
  if (isLost(failure) || failure.row.http < 500) return;
  if (process.env["SVC_STORM_SAYS"] === "1") process.stderr.write(`${operation.name} ${failure.name} (${during}): ${failure.message}\n`);
  const documented = failure.name !== "INTERNAL" && operation.failures.includes(failure.name) && failure.message.length > 10;
  if (documented) world.explained.set(failure.name, (world.explained.get(failure.name) ?? 0) + 1);
  else world.wrong.push(`${operation.name} answered ${failure.row.http} ${failure.name} (${during}): ${failure.message}`);
}

export function know(world: World, sandboxID: string, mark: string | undefined, state: State): KnownSandbox {
  const known: KnownSandbox = { sandboxID, mark, states: [state], mortal: false, busy: true };
  world.sandboxes.set(sandboxID, known);
  return known;
}

export function idle(world: World, state: State): KnownSandbox[] {
  return [...world.sandboxes.values()].filter((each) => !each.busy && !each.mortal && each.states.length === 1 && each.states[0] === state);
}
