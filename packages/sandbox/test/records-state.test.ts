// The state machine of a sandbox keeps its rules for every possible order of events.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { openEgress } from "../src/egress/policy.ts";
import { advance, type Event, type Kept, type Status } from "../src/records/state.ts";
import { claimWith, handle } from "./record-fixture.ts";

const kept = (checkpointID: string): Kept => ({ checkpointID, kind: "memory", runtime: "gvisor" });
const checkpointID = fc.constantFrom("c1", "c2", "c3");
const deadlineMs = fc.integer({ min: 0, max: 1000 });

const events: fc.Arbitrary<Event> = fc.oneof(
  fc.constant<Event>({ event: "started", handle }),
  fc.constant<Event>({ event: "claimed", claim: claimWith() }),
  deadlineMs.map<Event>((at) => ({ event: "deadline", deadlineMs: at, timeoutSeconds: 1 })),
  fc.boolean().map<Event>((allowInternet) => ({ event: "egress", egress: { ...openEgress, allowInternet } })),
  checkpointID.map<Event>((id) => ({ event: "pausing", kept: kept(id) })),
  deadlineMs.map<Event>((at) => ({ event: "thawed", deadlineMs: at })),
  fc.constant<Event>({ event: "paused", pausedAtWallMs: 5 }),
  checkpointID.map<Event>((id) => ({ event: "resuming", kept: kept(id) })),
  fc.constant<Event>({ event: "stayed" }),
  deadlineMs.map<Event>((at) => ({ event: "resumed", handle, deadlineMs: at, timeoutSeconds: 2 })),
  fc.constantFrom("oom", "killed", "timeout", "crashed", "node_lost").map<Event>((reason) => ({ event: "dying", reason })),
);

const allowed: Record<Status["state"], readonly Event["event"][]> = {
  creating: ["started", "dying"],
  warm: ["claimed", "dying"],
  running: ["deadline", "egress", "pausing", "dying"],
  pausing: ["thawed", "paused", "dying"],
  paused: ["egress", "resuming", "dying"],
  resuming: ["stayed", "resumed", "dying"],
  killing: ["dying"],
};

void test("in any order of events only the drawn transitions happen, an end is final, and its first reason stays", () => {
  fc.assert(
    fc.property(fc.array(events, { maxLength: 20 }), (sequence) => {
      let status: Status = { state: "creating" };
      let reason: string | undefined;
      for (const event of sequence) {
        if (!allowed[status.state].includes(event.event)) {
          assert.throws(() => advance(status, event), { name: "AssertionError" });
          continue;
        }
        const before = status as Status;
        status = advance(before, event);
        if (before.state === "killing") assert.equal(status.state, "killing");
        if (status.state === "killing") {
          reason ??= event.event === "dying" ? event.reason : undefined;
          assert.equal(status.reason, reason);
          assert.equal(status.claim !== undefined, "claim" in before && before.claim !== undefined);
        }
        if (event.event === "deadline" && status.state === "running") assert.equal(status.claim.deadlineMs, event.deadlineMs);
      }
    }),
    { numRuns: 1000 },
  );
});

void test("a sandbox that a client owns keeps its claim over every pause and resume, except deadline and rules", () => {
  fc.assert(
    fc.property(fc.array(events, { maxLength: 30 }), (sequence) => {
      const first = claimWith({ metadata: { who: "me" }, parentSandboxID: "i0", forkDepth: 2, secure: true });
      let status: Status = { state: "running", handle, claim: first };
      for (const event of sequence) {
        if (event.event === "dying" || !allowed[status.state].includes(event.event)) continue;
        status = advance(status, event);
        assert.ok("claim" in status && status.claim !== undefined);
        const { deadlineMs: _, timeoutSeconds: __, egress: ___, ...rest } = status.claim;
        const { deadlineMs: ____, timeoutSeconds: _____, egress: ______, ...expected } = first;
        assert.deepEqual(rest, expected);
        // A sandbox that is paused, pausing or resuming names its checkpoint.
        assert.equal("kept" in status, status.state !== "running");
      }
    }),
    { numRuns: 500 },
  );
});

void test("the ending of a paused sandbox names its checkpoint until it is finished, however often that is retried", () => {
  const kept = { checkpointID: "c1", kind: "memory", runtime: "gvisor" } as const;
  const killing = advance({ state: "paused", claim: claimWith(), kept, pausedAtWallMs: 1 }, { event: "dying", reason: "killed" });
  assert.ok(killing.state === "killing");
  assert.deepEqual(killing.kept, kept);
  assert.deepEqual(advance(killing, { event: "dying", reason: "timeout" }), killing);
});
