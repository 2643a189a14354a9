// Histories of many clients over leaders that die, freeze and hand over, checked for linearizability.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { needs } from "@svc/harness/needs.ts";
import { startCluster } from "./ha-cluster.ts";
import { faultRound, freeze, handOver, kill, promptFlags } from "./ha-rounds.ts";

const ROUNDS = 6;
const faults = [kill, freeze, handOver];
const seedOf = () => Number(process.env["SVC_TEST_SEED"] ?? Math.floor(Math.random() * 1e9));

void test("puts, gets and removals at whichever master answers are linearizable, while leaders are killed, frozen and replaced", async (t) => {
  const seed = seedOf();
  t.diagnostic(`seed ${seed}`);
  await using cluster = await startCluster({ flags: promptFlags, level: "warn" });
  let judged = 0;
  for (let round = 0; round < ROUNDS; round++) judged += await faultRound(cluster, faults[round % faults.length] ?? kill, seed + round);
  t.diagnostic(`${judged} steps`);
  assert.ok(judged > 50 * ROUNDS, `only ${judged} steps were judged`);
});

void test(
  "when the stream between leader and standby is cut, or the leader's host vanishes, two masters never acknowledge at once, and nothing is lost",
  needs("root", "nft", "ip"),
  async (t) => {
    const seed = seedOf();
    t.diagnostic(`seed ${seed}`);
    const world = fileURLToPath(new URL("ha-cut-world.ts", import.meta.url));
    const child = spawn("unshare", ["--net", "--kill-child", process.execPath, "--disable-warning=ExperimentalWarning", world, String(seed)], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    let said = "";
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (chunk: string) => void (said += chunk));
    const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
    assert.equal(code, 0, said.slice(-6000));
    assert.match(said, /"judged":\d{3}/);
    t.diagnostic(said.trim());
  },
);
