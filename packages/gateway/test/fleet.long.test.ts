// Simulates a day of 1,000 nodes and 100,000 sandboxes with node deaths, with the gateway's own placement and admission.
import assert from "node:assert/strict";
import { test } from "node:test";
import { runDay } from "./fleet.ts";

void test("a day of 1,000 nodes and 100,000 sandboxes over-commits no node", async (t) => {
  const seed = Number(process.env["SVC_FLEET_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
  const rules = { strategy: "spread" as const, memoryOvercommit: 2, memoryShare: 0.9 };
  const report = await runDay({ nodes: 1_000, sandboxes: 100_000, dayMs: 86_400_000, deaths: 50, outageMs: 300_000, maxSandboxes: 4, seed, rules });
  t.diagnostic(`seed ${seed} (SVC_FLEET_SEED): ${JSON.stringify(report)}`);
  assert.equal(report.overcommitted, 0);
  assert.equal(report.placed + report.refused, 100_000);
});
