// Placement and admission of a fleet with too little capacity over an hour: no capacity is promised twice, and creates wait in order.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Rules } from "../src/place/place.ts";
import { runDay } from "./fleet.ts";

const rules: Rules = { strategy: "spread", memoryOvercommit: 2, memoryShare: 0.9 };
const options = { nodes: 10, sandboxes: 4_000, dayMs: 3_600_000, deaths: 5, outageMs: 60_000, maxSandboxes: 60, rules };

for (const seed of [1, 2, 3]) {
  void test(`a fleet that is too small for its bursts queues creates and over-commits no node (seed ${seed})`, async () => {
    const report = await runDay({ ...options, seed });
    assert.equal(report.overcommitted, 0);
    assert.ok(report.mostOnOne <= options.maxSandboxes, JSON.stringify(report));
    assert.equal(report.placed + report.refused, options.sandboxes);
    assert.ok(report.waited > 0 && report.refused > 0, JSON.stringify(report));
    // The same seed gives the same hour.
    assert.deepEqual(await runDay({ ...options, seed }), report);
  });
}

void test("a fleet with enough capacity lets no create wait", async () => {
  const report = await runDay({ ...options, nodes: 30, seed: 4 });
  assert.deepEqual([report.waited, report.refused, report.overcommitted, report.p99WaitMs], [0, 0, 0, 0]);
});
