// Thousands of crash points: at moments drawn from a seed a leader dies, freezes or hands over, or a standby dies; each history is checked.
import assert from "node:assert/strict";
import { appendFileSync } from "node:fs";
import { test } from "node:test";
import { startCluster } from "./ha-cluster.ts";
import { random } from "./ha-history-clients.ts";
import { type Fault, faultRound, freeze, handOver, kill, killStandby, promptFlags } from "./ha-rounds.ts";

const POINTS = 10_000;
/** Shares of a hundred points; the rest are kills of the leader. */
const SHARES: readonly (readonly [Fault, number])[] = [
  [killStandby, 20],
  [handOver, 10],
  [freeze, 5],
];
/** Fresh folders from time to time also cover the beginning of a log. */
const POINTS_PER_CLUSTER = 250;
/** Progress is written after this many points, with the settings to continue from there, so that a run of hours may be interrupted. */
const SAID_EVERY = 25;

function faultOf(seed: number): Fault {
  const next = random(seed);
  // The first numbers of neighbouring seeds are nearly equal.
  next();
  let left = next() * 100;
  for (const [fault, share] of SHARES) {
    left -= share;
    if (left < 0) return fault;
  }
  return kill;
}

const continuation = (seed: number, point: number) => `continue with SVC_TEST_SEED=${seed} SVC_TEST_FIRST=${point}`;

// A point depends only on the seed and its number, so a run can continue where another one ended, and a failure can be repeated alone.
//   SVC_TEST_SEED=S SVC_TEST_FIRST=N SVC_TEST_POINTS=COUNT SVC_TEST_MINUTES=M SVC_TEST_PROGRESS=FILE ./svc test long ha-points
void test("10,000 crash points under load lose nothing that was acknowledged, and every history is linearizable", async (t) => {
  const { SVC_TEST_SEED, SVC_TEST_FIRST = "0", SVC_TEST_POINTS = `${POINTS}`, SVC_TEST_MINUTES, SVC_TEST_PROGRESS } = process.env;
  const seed = Number(SVC_TEST_SEED ?? Math.floor(Math.random() * 1e6));
  const first = Number(SVC_TEST_FIRST);
  const end = first + Number(SVC_TEST_POINTS);
  const untilMs = performance.now() + Number(SVC_TEST_MINUTES ?? Number.POSITIVE_INFINITY) * 60_000;
  let [point, judged] = [first, 0];
  try {
    while (point < end && performance.now() < untilMs) {
      await using cluster = await startCluster({ flags: promptFlags, level: "warn" });
      const last = Math.min(end, point + POINTS_PER_CLUSTER);
      for (; point < last && performance.now() < untilMs; point++) {
        const own = seed * POINTS + point;
        judged += await faultRound(cluster, faultOf(own), own);
        const held = point + 1 - first;
        if (SVC_TEST_PROGRESS !== undefined && held % SAID_EVERY === 0)
          appendFileSync(
            SVC_TEST_PROGRESS,
            `${new Date().toISOString()} ${held} points of seed ${seed} hold (${judged} steps); ${continuation(seed, point + 1)}\n`,
          );
      }
    }
  } finally {
    t.diagnostic(`points ${first} to ${point - 1} of seed ${seed} hold (${judged} steps); ${continuation(seed, point)}`);
  }
  assert.ok(judged > 10 * (point - first), `only ${judged} steps were judged`);
});
