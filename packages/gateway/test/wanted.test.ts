// How many nodes a deployment wants: by its scarcest resource, and, over a simulated day, without adding and removing nodes again and again.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type NodeUse, nodesToDrain, nodesWanted, SteadyWanted, type WantedRules } from "../src/place/wanted.ts";

const GIB = 2 ** 30;
const MINUTE = 60_000;
const rules: WantedRules = { target: 0.7, minNodes: 2, memoryOvercommit: 16, memoryShare: 0.9 };

function node(nodeID: string, sandboxes: number, rest: Partial<NodeUse> = {}): NodeUse {
  const memory = { totalBytes: 64 * GIB, availableBytes: 64 * GIB - sandboxes * (GIB / 8), reservedBytes: sandboxes * (GIB / 2) };
  return { nodeID, isDraining: false, sandboxes, maxSandboxes: 100, memory, ...rest };
}
const fleet = (count: number, each: number) => Array.from({ length: count }, (_, at) => node(`n${at}`, each));

void test("the scarcest resource decides, and says its name", () => {
  assert.deepEqual(nodesWanted(fleet(4, 35), 0, rules), {
    nodes: 2,
    reason: "sandboxes",
    by: { sandboxes: 2, promised_memory: 1, used_memory: 1, waiting_creates: 0 },
  });
  assert.equal(nodesWanted(fleet(4, 90), 0, rules).nodes, 6, "360 sandboxes at 70 of 100 a node");
  const full = (rest: Partial<NodeUse>) => nodesWanted([node("a", 10, rest), node("b", 10, rest), node("c", 10, rest)], 0, rules);
  const used = full({ memory: { totalBytes: 64 * GIB, availableBytes: 4 * GIB, reservedBytes: 10 * GIB } });
  assert.deepEqual([used.reason, used.nodes], ["used_memory", 5]);
  const promised = full({ memory: { totalBytes: 64 * GIB, availableBytes: 60 * GIB, reservedBytes: 900 * GIB } });
  assert.deepEqual([promised.reason, promised.nodes], ["promised_memory", 4]);
});

void test("while creates wait at least one more node is wanted, and as many as they fill", () => {
  const [full, waiting] = [fleet(3, 100), fleet(3, 40)];
  assert.deepEqual([nodesWanted(waiting, 5, rules).reason, nodesWanted(waiting, 5, rules).nodes], ["waiting_creates", 4]);
  assert.equal(nodesWanted(full, 700, rules).nodes, 15, "1,000 sandboxes at 70 a node");
  assert.equal(nodesWanted([], 5, rules).nodes, 2, "never fewer than the least number");
});

void test("a draining node does not count as capacity, and its sandboxes do", () => {
  const nodes = [...fleet(3, 60), node("leaving", 60, { isDraining: true })];
  assert.equal(nodesWanted(nodes, 0, rules).nodes, 4);
  assert.deepEqual(nodesToDrain(nodes, 2), ["n0"]);
  assert.deepEqual(nodesToDrain([node("a", 5), node("b", 2), node("c", 2)], 1), ["b", "c"]);
  assert.deepEqual(nodesToDrain(nodes, 7), []);
});

void test("as many nodes as are wanted hold the load below the target, for any load", () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 100 }), { minLength: 1, maxLength: 50 }), (loads) => {
      const { nodes } = nodesWanted(
        loads.map((load, at) => node(`n${at}`, load)),
        0,
        rules,
      );
      const total = loads.reduce((sum, load) => sum + load, 0);
      assert.ok(total <= nodes * 70, `${total} on ${nodes}`);
      assert.ok(nodes <= Math.max(rules.minNodes, Math.ceil(total / 70)), `${nodes} for ${total}`);
    }),
  );
});

type Day = { readonly scaleInMs: number; readonly seed: number };

/** Simulates 24 hours of a load with a noon, a night and bursts; machines take four minutes to come, and leave once they are drained. */
function simulateDay({ scaleInMs, seed }: Day) {
  let state = seed;
  const random = () => (state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0) / 2 ** 32;
  let nowMs = 0;
  const steady = new SteadyWanted(scaleInMs, () => nowMs);
  let serving = 6;
  const coming: number[] = [];
  const sizes: number[] = [];
  let [waited, turns, direction, burst, nodeMinutes, neededMinutes] = [0, 0, 0, 0, 0, 0];
  for (; nowMs < 24 * 60 * MINUTE; nowMs += MINUTE / 6) {
    if (random() < 1 / 720) burst = 150;
    burst *= 0.97;
    const hour = nowMs / (60 * MINUTE);
    const sandboxes = Math.round(500 - 400 * Math.cos((hour / 24) * 2 * Math.PI) + burst + 60 * (random() - 0.5));
    while (coming[0] !== undefined && coming[0] <= nowMs) {
      coming.shift();
      serving++;
    }
    const waiting = Math.max(0, sandboxes - serving * 100);
    waited += waiting / 6;
    const each = Math.min(100, sandboxes / serving);
    steady.add(nodesWanted(fleet(serving, each), waiting, rules));
    const wanted = steady.current?.nodes ?? serving;
    const before = serving + coming.length;
    while (serving + coming.length < wanted) coming.push(nowMs + 4 * MINUTE);
    // One machine at a time leaves, as the chart's autoscaler does it.
    if (serving + coming.length > wanted && nowMs % (5 * MINUTE) === 0) serving--;
    const change = Math.sign(serving + coming.length - before);
    if (change !== 0 && change !== direction) {
      turns++;
      direction = change;
    }
    sizes.push(serving);
    nodeMinutes += serving / 6;
    neededMinutes += Math.ceil(sandboxes / 70) / 6;
  }
  return { waited, turns, most: Math.max(...sizes), least: Math.min(...sizes), surplus: nodeMinutes / neededMinutes };
}

void test("over a day the fleet follows the load with a tenth to spare, and does not swing", () => {
  for (const seed of [1, 2, 3, 4, 5]) {
    const day = simulateDay({ scaleInMs: 10 * MINUTE, seed });
    const hasty = simulateDay({ scaleInMs: 1, seed });
    const said = JSON.stringify({ seed, day, hasty });
    assert.ok(day.most >= 13 && day.least <= 4, said);
    assert.ok(day.surplus < 1.15, said);
    // The load itself turns with each burst. A fleet that follows every sample turns all the time.
    assert.ok(day.turns <= 40 && hasty.turns > 4 * day.turns, said);
    // A burst at night is larger than the spare of two nodes: some creates wait while machines start, for less than a minute each on average.
    assert.ok(day.waited <= 150 && day.waited < hasty.waited, said);
  }
});
