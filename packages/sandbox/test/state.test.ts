// The state machine of a sandbox: every possible order of events keeps its rules.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { advance, type Claim, type Event, type Status } from "../src/node/state.ts";
import type { RuntimeHandle } from "../src/runtime/runtime.ts";

const handle: RuntimeHandle = {
  runtime: "runc",
  runtimeID: "i0",
  directory: "/d",
  pid: 1,
  pidStartTicks: 1,
  endpoint: { kind: "tcp", host: "10.0.0.2" },
  network: undefined,
};
const claim: Claim = {
  startedAtWallMs: 0,
  deadlineMs: 10,
  secure: true,
  trafficPrivate: false,
  allowInternet: true,
  maskRequestHost: undefined,
  metadata: {},
  alias: "base",
};

const events: fc.Arbitrary<Event> = fc.oneof(
  fc.constant<Event>({ event: "started", handle }),
  fc.constant<Event>({ event: "claimed", claim }),
  fc.integer({ min: 0, max: 1000 }).map<Event>((deadlineMs) => ({ event: "deadline", deadlineMs })),
  fc.constantFrom("oom", "killed", "timeout", "crashed", "node_lost").map<Event>((reason) => ({ event: "dying", reason })),
);

const allowed: Record<Status["state"], readonly Event["event"][]> = {
  creating: ["started", "dying"],
  warm: ["claimed", "dying"],
  running: ["deadline", "dying"],
  killing: ["dying"],
};

void test("in any order of events only the drawn moves happen, an end is final, and its first reason stands", () => {
  fc.assert(
    fc.property(fc.array(events, { maxLength: 12 }), (sequence) => {
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
          assert.equal(status.claim !== undefined, before.state === "running" || (before.state === "killing" && before.claim !== undefined));
        }
        if (event.event === "deadline" && status.state === "running") assert.equal(status.claim.deadlineMs, event.deadlineMs);
      }
    }),
    { numRuns: 500 },
  );
});
