// The plan of a storm.
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Kind, planOf } from "../src/storm-plan.ts";

void test("any seed plans each kind of operation often, and the same round is always the same", () => {
  for (const seed of [0, 1, 17, 999_999_999]) {
    const wanted = new Map<Kind, number>();
    for (let round = 0; round < 500; round++) for (const each of planOf(seed, round).operations) wanted.set(each.wanted, (wanted.get(each.wanted) ?? 0) + 1);
    for (const kind of ["pause", "resume", "fork", "snapshot", "build"] as const) assert.equal(wanted.get(kind), 250, `${kind}, seed ${seed}`);
    for (const kind of ["create", "delete"] as const) assert.equal(wanted.get(kind), 125, `${kind}, seed ${seed}`);
    assert.deepEqual(planOf(seed, 41).operations, planOf(seed, 41).operations);
  }
});
