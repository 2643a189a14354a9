// One route migration: its request, its states, and all transitions between them.
import assert from "node:assert/strict";

export type MigrationMode = "copy" | "move";

export type MigrationRequest = {
  readonly mode: MigrationMode;
  readonly authority: string;
  readonly tenant: string;
  readonly domain: string | null;
  readonly object_set: string | null;
  readonly key: string;
  readonly source_segment: string;
  readonly target_segments: readonly string[];
  readonly task_executor: string;
};

export type RetryPolicy = { readonly maxRetries: number; readonly baseDelayMs: number; readonly maxDelayMs: number };

/** The route's verdict on a migration: done, permanently contradicted, or still open. */
export type Verdict = { readonly is: "done" } | { readonly is: "conflict"; readonly why: string } | { readonly is: "open" };

//            dispatched            reported running
//  pending ────────────▶ dispatching ────────────▶ running ────────▶ succeeded
//     │  ▲                    │                       │                 ▲
//     │  └── retry_due ── retry_wait ◀── attempt_failed ──┘             │ completed, or the route shows the result
//     └── attempt_failed ─────┤ └── retry_due, with an execution id ──▶ dispatching
//                             └──── no retry left, or the route contradicts the request ────▶ failed
/** `executionID` is the master's id of the executor's task. */
export type Phase =
  | { readonly state: "pending" }
  | { readonly state: "dispatching" | "running"; readonly executionID: string }
  /** With an execution id the status is queried again; without one the task is dispatched again. */
  | { readonly state: "retry_wait"; readonly wakeAtMs: number; readonly executionID?: string }
  | { readonly state: "succeeded" | "failed" };

/** `attempts` counts dispatches that were started; `statusFailures` counts failed queries of this execution. */
export type Progress = { readonly phase: Phase; readonly attempts: number; readonly statusFailures: number; readonly lastError: string };

export type MigrationEvent =
  | { readonly type: "dispatched"; readonly executionID: string }
  | { readonly type: "reported"; readonly isRunning: boolean }
  | { readonly type: "completed" }
  /** No executor took the task, the executor failed or lost its lease, or the status could not be queried. */
  | {
      readonly type: "attempt_failed";
      readonly with: "dispatch" | "execution" | "status";
      readonly why: string;
      readonly verdict: Verdict;
      readonly nowMs: number;
    }
  | { readonly type: "retry_due" };

export const begun: Progress = { phase: { state: "pending" }, attempts: 0, statusFailures: 0, lastError: "" };

export const isEnded = ({ phase }: Progress): boolean => phase.state === "succeeded" || phase.state === "failed";

export function advance(progress: Progress, event: MigrationEvent, policy: RetryPolicy): Progress {
  const { phase } = progress;
  switch (event.type) {
    case "dispatched":
      assert.equal(phase.state, "pending");
      return { ...progress, phase: { state: "dispatching", executionID: event.executionID }, attempts: progress.attempts + 1, statusFailures: 0 };
    case "reported":
      assert.ok(phase.state === "dispatching" || phase.state === "running");
      return { ...progress, phase: { state: event.isRunning ? "running" : "dispatching", executionID: phase.executionID }, statusFailures: 0 };
    case "completed":
      assert.ok(phase.state === "dispatching" || phase.state === "running");
      return { ...progress, phase: { state: "succeeded" }, lastError: "" };
    case "retry_due":
      assert.equal(phase.state, "retry_wait");
      return { ...progress, phase: phase.executionID === undefined ? { state: "pending" } : { state: "dispatching", executionID: phase.executionID } };
    case "attempt_failed":
      return afterFailedAttempt(progress, event, policy);
  }
}

function afterFailedAttempt(progress: Progress, event: Extract<MigrationEvent, { type: "attempt_failed" }>, policy: RetryPolicy): Progress {
  const { phase } = progress;
  assert.ok(event.with === "dispatch" ? phase.state === "pending" : phase.state === "dispatching" || phase.state === "running");
  const attempts = progress.attempts + (event.with === "dispatch" ? 1 : 0);
  const statusFailures = progress.statusFailures + (event.with === "status" ? 1 : 0);
  // The route is the durable truth: an executor may vanish after doing the work.
  if (event.verdict.is === "done") return { phase: { state: "succeeded" }, attempts, statusFailures, lastError: "" };
  if (event.verdict.is === "conflict") return { phase: { state: "failed" }, attempts, statusFailures, lastError: `${event.why}; ${event.verdict.why}` };
  const failures = event.with === "status" ? statusFailures : attempts;
  // The budget counts retries, and the first attempt is not one.
  if (failures > policy.maxRetries) return { phase: { state: "failed" }, attempts, statusFailures, lastError: event.why };
  const wakeAtMs = event.nowMs + backoffMs(failures, policy);
  const kept = event.with === "status" && "executionID" in phase ? { executionID: phase.executionID } : {};
  return { phase: { state: "retry_wait", wakeAtMs, ...kept }, attempts, statusFailures, lastError: event.why };
}

/** The delay before the attempt that follows the `failures`th failure. */
export const backoffMs = (failures: number, { baseDelayMs, maxDelayMs }: RetryPolicy): number =>
  Math.min(maxDelayMs, baseDelayMs * 2 ** Math.min(30, failures - 1));
