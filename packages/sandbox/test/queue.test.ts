// Admission of creates: order, bound and wait.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { openGate } from "../src/node/queue.ts";

void test("creates run a few at once, in the order they came, and a failing one makes room", async () => {
  const gate = openGate(2, 100, 60_000);
  const order: number[] = [];
  let most = 0;
  const work = (n: number) =>
    gate.run(async () => {
      order.push(n);
      most = Math.max(most, gate.running);
      await sleep(1);
      if (n === 3) throw new Error("three");
    });
  const results = await Promise.allSettled([...Array(20).keys()].map(work));
  assert.deepEqual(order, [...Array(20).keys()]);
  assert.equal(most, 2);
  assert.deepEqual(results.filter((result) => result.status === "rejected").length, 1);
  assert.equal(gate.running, 0);
});

void test("a full line refuses with 429 and a time to come back; a turn that does not come is a timeout", async () => {
  const gate = openGate(1, 1, 30);
  let open = () => {};
  const first = gate.run(() => new Promise<void>((resolve) => (open = resolve)));
  const second = gate.run(async () => {});
  await assert.rejects(
    gate.run(async () => {}),
    { name: "TOO_MANY_REQUESTS", retryAfterSeconds: 1 },
  );
  await assert.rejects(second, { name: "TIMED_OUT" });
  open();
  await first;
  await gate.run(async () => {});
  assert.equal(gate.waiting, 0);
});
