// Placement: which nodes may take a sandbox and in which order; the same code, with a clock as an argument, simulates a day of a fleet.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type Candidate, isWideEnough, place, type Rules, weightOf } from "../src/place/place.ts";
import { AdmissionQueue } from "../src/place/queue.ts";

const GIB = 2 ** 30;
const spread: Rules = { strategy: "spread", memoryOvercommit: 16, memoryShare: 0.9 };

function node(nodeID: string, given: Partial<Omit<Candidate, "template">> & { ready?: number; templates?: readonly string[] } = {}): Candidate {
  const { ready = 0, templates = ["base"], ...rest } = given;
  return {
    nodeID,
    isUp: true,
    isDraining: false,
    cpuClass: "x86-64-v3",
    labels: {},
    maxSandboxes: 100,
    running: 0,
    starting: 0,
    underWay: given.starting ?? 0,
    isFull: false,
    memory: { totalBytes: 64 * GIB, availableBytes: 60 * GIB, reservedBytes: 0 },
    template: (asked) => (templates.includes(asked) ? { memoryBytes: GIB / 2, ready } : undefined),
    ...rest,
  };
}

const idsOf = (nodes: readonly Candidate[]) => nodes.map(({ nodeID }) => nodeID);
const request = { templateID: "base" };

void test("a sandbox goes to the node with the most free capacity, or with pack to the fullest node that can take it", () => {
  const nodes = [node("a", { running: 40 }), node("b", { running: 10 }), node("c", { running: 99 }), node("d", { running: 100 })];
  assert.deepEqual(idsOf(place(nodes, request, spread).candidates), ["b", "a", "c"]);
  assert.deepEqual(idsOf(place(nodes, request, { ...spread, strategy: "pack" }).candidates), ["c", "a", "b"]);
});

void test("among about equal nodes, the one with a warm sandbox of the template comes first", () => {
  assert.deepEqual(idsOf(place([node("a"), node("b", { running: 1, ready: 2 })], request, spread).candidates), ["b", "a"]);
  assert.deepEqual(idsOf(place([node("a"), node("b", { running: 30, ready: 2 })], request, spread).candidates), ["a", "b"]);
});

void test("a node that may not take a sandbox is left out with its reason", () => {
  const nodes = [
    node("down", { isUp: false }),
    node("draining", { isDraining: true }),
    node("full", { isFull: true }),
    node("no-memory", { memory: { totalBytes: 64 * GIB, availableBytes: GIB, reservedBytes: 0 } }),
    node("promised", { memory: { totalBytes: GIB, availableBytes: GIB, reservedBytes: 16 * GIB } }),
    node("other-template", { templates: ["other"] }),
    node("other-zone", { labels: { zone: "b" } }),
    node("narrow", { cpuClass: "x86-64-v2", labels: { zone: "a" } }),
    node("fits", { labels: { zone: "a", disk: "fast" } }),
  ];
  const { candidates, refused } = place(nodes, { ...request, labels: { zone: "a" }, cpuClass: "x86-64-v3" }, spread);
  assert.deepEqual(idsOf(candidates), ["fits"]);
  assert.equal(refused.get("other-template"), "unknown template");
  assert.equal(refused.get("down"), "down");
  assert.equal(refused.get("other-zone"), "labels");
  assert.equal(refused.get("narrow"), "CPU class");
  assert.equal(place(nodes, request, spread).refused.get("no-memory"), "memory");
  assert.equal(place(nodes, request, spread).refused.get("promised"), "memory");
  assert.equal(place(nodes, request, spread).refused.get("full"), "full");
});

void test("a checkpoint may resume on a processor that has at least the features of its own", () => {
  assert.ok(isWideEnough("x86-64-v4", "x86-64-v3"));
  assert.ok(!isWideEnough("x86-64-v2", "x86-64-v3"));
  assert.ok(isWideEnough("arm64", "arm64"));
  assert.ok(!isWideEnough("x86-64-v4", "arm64"));
});

void test("an idempotency key gives the same order of nodes whatever their load, and keys spread over the nodes", () => {
  const nodes = ["a", "b", "c"].map((name) => node(name));
  const firsts = new Map<string, number>();
  for (let key = 0; key < 3_000; key++) {
    const [first] = idsOf(place(nodes, { ...request, idempotencyKey: `key-${key}` }, spread).candidates);
    const busy = nodes.map((each, index) => node(each.nodeID, { running: index * 40 }));
    assert.equal(place(busy, { ...request, idempotencyKey: `key-${key}` }, spread).candidates[0]?.nodeID, first);
    firsts.set(first ?? "", (firsts.get(first ?? "") ?? 0) + 1);
  }
  for (const count of firsts.values()) assert.ok(count > 900 && count < 1_100, String([...firsts]));
  assert.equal(weightOf("key", "a"), weightOf("key", "a"));
});

void test("300 creates at once over three equal nodes are within ten per cent of even", () => {
  const creating = new Map([
    ["a", 0],
    ["b", 0],
    ["c", 0],
  ]);
  for (let create = 0; create < 300; create++) {
    const nodes = [...creating].map(([name, starting]) => node(name, { starting, maxSandboxes: 1_000, ready: name === "a" ? 4 : 0 }));
    const chosen = place(nodes, request, spread).candidates[0]?.nodeID ?? "";
    creating.set(chosen, (creating.get(chosen) ?? 0) + 1);
  }
  for (const count of creating.values()) assert.ok(count >= 90 && count <= 110, JSON.stringify([...creating]));
});

void test("no node gets more sandboxes than its maximum or its memory allows, whatever is created or ended", () => {
  const steps = fc.array(fc.record({ kind: fc.constantFrom("create", "create", "end"), node: fc.nat(3) }), { maxLength: 400 });
  fc.assert(
    fc.property(steps, fc.constantFrom("spread" as const, "pack" as const), (all, strategy) => {
      const held = [0, 0, 0, 0];
      const memoryOf = (running: number) => ({ totalBytes: 8 * GIB, availableBytes: 8 * GIB - (running * GIB) / 8, reservedBytes: (running * GIB) / 2 });
      const rules = { strategy, memoryOvercommit: 2, memoryShare: 0.9 };
      for (const step of all) {
        if (step.kind === "end") held[step.node] = Math.max(0, (held[step.node] ?? 0) - 1);
        else {
          const nodes = held.map((running, index) => node(String(index), { running, maxSandboxes: 20, memory: memoryOf(running) }));
          const chosen = place(nodes, request, rules).candidates[0];
          if (chosen !== undefined) held[Number(chosen.nodeID)] = (held[Number(chosen.nodeID)] ?? 0) + 1;
          else assert.ok(nodes.every(({ running, memory }) => running >= 20 || memory.reservedBytes + GIB / 2 > 16 * GIB || memory.availableBytes < GIB));
        }
        for (const running of held) assert.ok(running <= 20 && (running * GIB) / 2 <= 16 * GIB);
      }
    }),
  );
});

void test("waiting creates are released in the order they came, and those whose time is over are refused", async () => {
  let nowMs = 0;
  const queue = new AdmissionQueue({ length: 3, waitMs: 1_000 }, () => nowMs);
  const said: string[] = [];
  const wait = (name: string, sinceMs: number) => void queue.wait(sinceMs).then((mayTry) => said.push(`${name} ${mayTry}`));
  wait("first", 0);
  nowMs = 400;
  wait("second", 400);
  // A create that tried without success goes back to its position, before later ones.
  wait("again", 100);
  assert.equal(queue.length, 3);
  assert.ok(queue.isFull);
  queue.release(1);
  queue.release(1);
  nowMs = 1_400;
  queue.expire();
  await new Promise(setImmediate);
  assert.deepEqual(said, ["first true", "again true", "second false"]);
  assert.equal(queue.length, 0);
});

void test("the wait is estimated from the recent rate of admissions", () => {
  let nowMs = 0;
  const queue = new AdmissionQueue({ length: 1_000, waitMs: 30_000 }, () => nowMs);
  assert.equal(queue.estimatedWaitMs, 30_000);
  for (let create = 0; create < 20; create++) {
    nowMs += 100;
    queue.admitted();
  }
  for (let create = 0; create < 9; create++) void queue.wait(nowMs);
  assert.equal(queue.estimatedWaitMs, 5_000);
});
