// The weight of all sandboxes together against the host's programs.
import assert from "node:assert/strict";
import { test } from "node:test";
import { nextShare } from "../src/runtime/cgroup-share.ts";

void test("sandboxes that use little of the processors weigh as much as a session, and those that use half of them yield", () => {
  assert.equal(nextShare("yielding", 0.2), "equal");
  assert.equal(nextShare("equal", 0.5), "yielding");
  // Between the two thresholds the weight stays, so that it does not change with every look.
  assert.equal(nextShare("equal", 0.4), "equal");
  assert.equal(nextShare("yielding", 0.4), "yielding");
});
