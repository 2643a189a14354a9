// The answers that clients got about their sandboxes during network cuts, and what must therefore hold. Every sandbox keeps its own log, on
// disk and in memory, which may contain only acknowledged and attempted lines. A sandbox that ran twice, or from an older state, lacks an
// acknowledged line.
import { asFailure, type Failure } from "@svc/contract/failures.ts";

export type Known = {
  readonly sandboxID: string;
  readonly envdAccessToken: string | undefined;
  /** The lines whose append was acknowledged, in order. */
  readonly acknowledged: string[];
  /** Every line that may be in the log. */
  readonly attempted: Set<string>;
  /** The state is certain only if no request was attempted since the answer that reported it. */
  state: "running" | "paused" | "unknown";
  mayWakeUntilMs: number;
  /** The reason why the latest failed request got no answer. */
  refusal: string | undefined;
  /** True if a delete was attempted. */
  mayBeGone: boolean;
};

export type History = {
  readonly known: Map<string, Known>;
  /** Sandboxes whose delete was acknowledged, or that were lost with their node. */
  readonly gone: Set<string>;
  readonly acknowledged: Record<Kind, number>;
  readonly refused: Map<string, number>;
  /** The number of running sandboxes lost with a node that was declared dead. */
  lost: number;
  /** Violations, which must not happen. */
  readonly wrong: string[];
};

export type Kind = "create" | "append" | "pause" | "resume" | "fork" | "move" | "delete";

export function emptyHistory(): History {
  const acknowledged = { create: 0, append: 0, pause: 0, resume: 0, fork: 0, move: 0, delete: 0 };
  return { known: new Map(), gone: new Set(), acknowledged, refused: new Map(), lost: 0, wrong: [] };
}

export function know(history: History, answer: { sandboxID: string; envdAccessToken?: string | undefined }, parent?: Known): Known {
  const known: Known = {
    sandboxID: answer.sandboxID,
    envdAccessToken: answer.envdAccessToken,
    acknowledged: [...(parent?.acknowledged ?? [])],
    attempted: new Set(parent?.attempted),
    state: "running",
    mayWakeUntilMs: 0,
    refusal: undefined,
    mayBeGone: false,
  };
  history.known.set(known.sandboxID, known);
  return known;
}

/** Checks a log of `known`: it must contain all acknowledged lines, once and in order, and no unknown line. */
export function judgeLog(history: History, { sandboxID, acknowledged, attempted }: Known, text: string): void {
  const lines = text.split("\n").filter((line) => line !== "");
  const says = (what: string) => history.wrong.push(`${sandboxID}: ${what}; acknowledged ${acknowledged.join(",")}; found ${lines.join(",")}`);
  if (new Set(lines).size < lines.length) says("a line is there twice");
  if (lines.some((line) => !attempted.has(line))) says("a line is there that nobody wrote");
  const kept = lines.filter((line) => acknowledged.includes(line));
  if (kept.join() !== acknowledged.join()) says("not every acknowledged line is there, in order");
}

/**
 * Judges a refusal of `kind` after which the sandbox may have changed: "not found" is allowed only if it may be gone. Returns true if the
 * sandbox is lost, which means that it ran, or may have run, on a node that was declared dead.
 */
export function judgeFailure(history: History, kind: Kind, known: Known | undefined, state: Known["state"], error: unknown): boolean {
  const failure: Failure = asFailure(error);
  history.refused.set(failure.name, (history.refused.get(failure.name) ?? 0) + 1);
  if (failure.name === "INTERNAL") history.wrong.push(`${kind} of ${known?.sandboxID ?? "a new one"}: ${failure.message}`);
  if (known !== undefined) known.refusal = `${kind}: ${failure.name} ${failure.message}`;
  if (known === undefined || failure.name !== "SANDBOX_NOT_FOUND") return false;
  history.known.delete(known.sandboxID);
  history.gone.add(known.sandboxID);
  if (known.mayBeGone) return true;
  const isLost = /node_lost/.test(failure.message) || failure.details["reason"] === "node_lost";
  if (isLost && state !== "paused") history.lost++;
  else history.wrong.push(`${kind} of ${known.sandboxID}, which was ${state}: ${failure.message}`);
  return true;
}
