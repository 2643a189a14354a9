// What all sandboxes together weigh beside the host's programs.
import assert from "node:assert/strict";
import { test } from "node:test";
import { nextShare } from "../src/runtime/cgroup-share.ts";

void test("sandboxes that have little of the processors weigh as much as a session, those that have half of them give way", () => {
  assert.equal(nextShare("yielding", 0.2), "equal");
  assert.equal(nextShare("equal", 0.5), "yielding");
  // Between the two the weight stays, so that it does not change with every look.
  assert.equal(nextShare("equal", 0.4), "equal");
  assert.equal(nextShare("yielding", 0.4), "yielding");
});
