// The states of a route migration: random sequences of events follow the drawing, and the route has the final word.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Route } from "@svc/store/rpc/shapes.ts";
import fc from "fast-check";
import { verdictOf } from "../src/migrations/route.ts";
import { advance, backoffMs, begun, isEnded, type MigrationEvent, type MigrationRequest, type Progress, type Verdict } from "../src/migrations/task.ts";

const policy = { maxRetries: 5, baseDelayMs: 3000, maxDelayMs: 30_000 };
const verdict = fc.constantFrom<Verdict>({ is: "open" }, { is: "done" }, { is: "conflict", why: "there is one too many" });

/** Chooses an event that can happen to a task in this state. */
function next(progress: Progress, roll: number, says: Verdict): MigrationEvent | undefined {
  const { state } = progress.phase;
  const failedAttempt = (what: "dispatch" | "execution" | "status"): MigrationEvent => ({
    type: "attempt_failed",
    with: what,
    why: "it went wrong",
    verdict: says,
    nowMs: 1000,
  });
  if (state === "pending") return roll % 3 === 0 ? failedAttempt("dispatch") : { type: "dispatched", executionID: `run-${progress.attempts}` };
  if (state === "retry_wait") return { type: "retry_due" };
  if (state === "dispatching" || state === "running")
    return (
      [
        { type: "reported", isRunning: roll % 2 === 0 },
        failedAttempt("execution"),
        failedAttempt("status"),
        { type: "completed" },
        failedAttempt("status"),
      ] as const
    )[roll % 5];
  return undefined;
}

void test("a migration is tried no more often than its budget, and ends succeeded or failed", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(59), verdict), { minLength: 1, maxLength: 200 }), (rolls) => {
      let progress = begun;
      for (const [roll, says] of rolls) {
        const event = next(progress, roll, says);
        if (event === undefined) break;
        const before = progress;
        progress = advance(progress, event, policy);
        assert.ok(progress.attempts <= policy.maxRetries + 1);
        if (event.type === "attempt_failed") {
          if (says.is === "done") assert.equal(progress.phase.state, "succeeded");
          if (says.is === "conflict") assert.equal(progress.phase.state, "failed");
          assert.ok(isEnded(progress) || progress.phase.state === "retry_wait");
          // Only a failed status query keeps its execution.
          if (progress.phase.state === "retry_wait") assert.equal("executionID" in progress.phase, event.with === "status" && "executionID" in before.phase);
        }
        if (progress.phase.state === "failed") assert.notEqual(progress.lastError, "");
      }
      if (isEnded(progress)) assert.throws(() => advance(progress, { type: "retry_due" }, policy));
    }),
  );
});

void test("the pauses between attempts double from three seconds to thirty", () => {
  assert.deepEqual(
    [1, 2, 3, 4, 5, 6, 40].map((failures) => backoffMs(failures, policy)),
    [3000, 6000, 12_000, 24_000, 30_000, 30_000, 30_000],
  );
});

const request = (mode: "copy" | "move", targets: readonly string[]): MigrationRequest => ({
  mode,
  authority: "a",
  tenant: "t",
  domain: null,
  object_set: null,
  key: "k",
  source_segment: "s",
  target_segments: targets,
  task_executor: "e",
});
const replica = (segment: string, status = 3) => ({ segment, clientID: "00000000-0000-0000-0000-000000000000", status, address: 0n, isReadable: true });
const route = (...replicas: Route["replicas"]): Route => ({ sizeBytes: 1n, checksum: undefined, isMoving: false, replicas });

void test("the route says whether a copy or a move is done, still open, or contradicted", () => {
  const rows: [MigrationRequest, Route | undefined, Verdict["is"]][] = [
    [request("copy", ["x", "y"]), route(replica("s"), replica("x"), replica("y")), "done"],
    [request("copy", ["x", "y"]), route(replica("s"), replica("x")), "conflict"],
    [request("copy", ["x", "y"]), route(replica("s"), replica("x", 2), replica("y", 2)), "open"],
    [request("copy", ["x"]), route(replica("x")), "conflict"],
    [request("copy", ["x"]), route(replica("s")), "open"],
    [request("move", ["x"]), route(replica("x")), "done"],
    [request("move", ["x"]), route(replica("s"), replica("x")), "conflict"],
    [request("move", ["x"]), route(replica("s")), "open"],
    [request("move", ["x"]), route(replica("other")), "conflict"],
    [request("move", ["x"]), undefined, "conflict"],
  ];
  for (const [asked, found, expected] of rows)
    assert.equal(verdictOf(asked, found).is, expected, `${asked.mode} ${found?.replicas.map(({ segment }) => segment)}`);
});
