// The weight of all sandboxes together against the host's programs.
import assert from "node:assert/strict";
import { test } from "node:test";
import { nextShare } from "../src/runtime/cgroup-share.ts";

void test("sandboxes that get little CPU time have the weight of one session, and sandboxes that use half of the CPUs yield", () => {
  assert.equal(nextShare("yielding", 0.2), "equal");
  assert.equal(nextShare("equal", 0.5), "yielding");
  // Between the two thresholds the weight stays, so that it does not change with every look.
  assert.equal(nextShare("equal", 0.4), "equal");
  assert.equal(nextShare("yielding", 0.4), "yielding");
});
