// What a storm's clients were told, and so what a node must still have: sandboxes with their content, snapshots, templates.
import type { Failure } from "@svc/contract/failures.ts";
import type { Operation } from "@svc/contract/operation.ts";
import type { Kind } from "./storm-plan.ts";

export type State = "running" | "paused" | "gone";

export type KnownSandbox = {
  readonly sandboxID: string;
  /** In its file and its process; undefined where the client did not get to writing it. */
  mark: string | undefined;
  /** More than one: an operation failed or its answer was lost, and either is right. */
  states: readonly State[];
  /** A part that it stands on was killed: it may be gone, with its reason. */
  mortal: boolean;
  /** An operation of this round works on it. */
  busy: boolean;
};

export type World = {
  readonly sandboxes: Map<string, KnownSandbox>;
  /** Of each snapshot, the mark of its source. */
  readonly snapshots: Map<string, string | undefined>;
  /** Of each template, the marks that a sandbox of it may show: that of the newest build, and of those nobody knows the end of. */
  readonly templates: Map<string, readonly string[]>;
  readonly acknowledged: Record<Kind, number>;
  /** Failures with a documented name and a reason, by name. */
  readonly explained: Map<string, number>;
  /** What must not have happened. */
  readonly wrong: string[];
  /** Children of these sources may be there that nobody was told of; likewise snapshots. */
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

/** The answer was lost with the connection: nobody knows what became of the request. */
export function isLost(failure: Failure): boolean {
  return failure.name === "SERVER_UNREACHABLE" && failure.cause !== undefined;
}

/** Counts a refusal; one of the server's own fault must bear a name that its operation lists, and say why. */
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
