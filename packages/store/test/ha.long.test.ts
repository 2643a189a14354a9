// Hundreds of takeovers under load: no acknowledged change is lost, and every history is linearizable.
import assert from "node:assert/strict";
import { test } from "node:test";
import { startCluster } from "./ha-cluster.ts";
import { faultRound, freeze, handOver, kill, promptFlags } from "./ha-rounds.ts";

const KILLS = 200;
const OTHERS = 50;

void test("200 kills, 50 freezes and 50 hand-overs of the leader under load lose nothing that was acknowledged", async (t) => {
  const seed = Number(process.env["SVC_TEST_SEED"] ?? Math.floor(Math.random() * 1e9));
  t.diagnostic(`seed ${seed}`);
  await using cluster = await startCluster({ flags: promptFlags, level: "warn" });
  const plan = [...Array.from({ length: KILLS }, () => kill), ...Array.from({ length: OTHERS }, () => [freeze, handOver]).flat()];
  let judged = 0;
  for (const [round, fault] of plan.entries()) judged += await faultRound(cluster, fault, seed + round);
  t.diagnostic(`${judged} steps`);
  assert.ok(judged > 50 * plan.length, `only ${judged} steps were judged`);
});
