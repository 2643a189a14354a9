// Creates under an Idempotency-Key over nodes that fill, die, return and join, seen by several gateways: one key never has two live sandboxes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { randomOf, World } from "./keyed-history.ts";

const SEEDS = 40;
/** Seeds of histories in which two sandboxes were once live for one key. */
const FOUND = [1000065, 1000193, 1001387, 1002231, 1002390, 1002993, 5000696, 5001792];
const CLIENTS = 3;
const REPEATS = 12;

/** Runs one history and checks the answers by key after each step. */
async function history(seed: number): Promise<{ answered: number; refused: number }> {
  const world = new World(seed);
  const random = randomOf(seed + 1e6);
  const gateways = [world.view(), world.view(), world.view()];
  let [answered, refused, running] = [0, 0, 0];
  const answers = new Map<string, Set<string>>();
  const mayChange = new Set<string>();

  async function client(key: string): Promise<void> {
    running++;
    for (let repeat = 0; repeat < REPEATS; repeat++) {
      const answer = await world.create(gateways[random(gateways.length)] ?? world.view(), key);
      if (answer === undefined) refused++;
      else {
        answered++;
        answers.set(key, (answers.get(key) ?? new Set()).add(answer));
      }
      for (let rest = random(20); rest > 0; rest--) await world.pause();
    }
    running--;
  }

  function strike(): void {
    const node = world.nodes[random(world.nodes.length)];
    if (node === undefined) return;
    const kind = random(10);
    if (kind < 3) node.capacity = random(3);
    else if (kind < 6 && node.state !== "up") node.start();
    else if (kind === 6 && node.state === "up") node.kill();
    else if (kind === 7) {
      for (const key of node.live.keys()) mayChange.add(key);
      if (node.state === "up") node.kill();
      node.declareDead();
    } else if (kind === 8 && world.nodes.length < 6) world.join();
    else gateways[random(gateways.length)]?.hear();
  }

  const keys = ["one", "two"];
  const clients = keys.flatMap((key) => Array.from({ length: CLIENTS }, () => client(key)));
  for (let step = 0; running > 0; step++) {
    assert.ok(step < 200_000, `seed ${seed}: it never ends`);
    if (random(50) === 0) strike();
    await world.step();
    for (const key of keys) {
      const live = world.nodes.flatMap((node) => Array.from({ length: node.live.get(key) ?? 0 }, () => `${node.name} (${node.state})`));
      assert.ok(live.length <= 1, `seed ${seed}: key ${key} has ${live.join(" and ")} at step ${step}`);
    }
  }
  await Promise.all(clients);
  for (const [key, all] of answers) assert.ok(all.size === 1 || mayChange.has(key), `seed ${seed}: key ${key} was answered ${[...all].join(" and ")}`);
  world.close();
  return { answered, refused };
}

void test("a create repeated under its key at any gateway makes one sandbox while nodes fill, die, return and join", async (t) => {
  const first = Number(process.env["SVC_TEST_SEED"] ?? Math.floor(Math.random() * 1e9));
  t.diagnostic(`seed ${first}`);
  let [answered, refused] = [0, 0];
  for (const seed of [...FOUND, ...Array.from({ length: SEEDS }, (_, index) => first + index)]) {
    const counted = await history(seed);
    answered += counted.answered;
    refused += counted.refused;
  }
  t.diagnostic(`${answered} creates answered, ${refused} refused or unknown`);
  assert.ok(answered > SEEDS, `only ${answered} creates were answered`);
});
