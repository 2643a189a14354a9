// The semaphore: order, several units, and waits that end.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Semaphore } from "../src/semaphore.ts";

void test("permits are passed on in order, and a caller that gives up waiting gets none", async () => {
  const slots = new Semaphore(1);
  const order: string[] = [];
  const { promise: held, resolve: free } = Promise.withResolvers<void>();
  const leaving = new AbortController();
  const first = slots.within(new AbortController().signal, () => held);
  const gone = slots.within(leaving.signal, async () => order.push("gone"));
  const second = slots.within(new AbortController().signal, async () => order.push("second"));
  leaving.abort();
  assert.equal(await gone, undefined);
  free();
  await Promise.all([first, second]);
  assert.deepEqual(order, ["second"]);
});

void test("callers with several units wait in order until theirs fit, and one that exceeds the limit enters alone", async () => {
  const bytes = new Semaphore(10);
  const order: number[] = [];
  const entered = async (units: number) => {
    await bytes.enter({ units });
    order.push(units);
  };
  await entered(6);
  const all = Promise.all([entered(5), entered(1), entered(30), entered(2)]);
  await new Promise(setImmediate);
  assert.deepEqual([order, bytes.waiting], [[6], 4], "the small ones wait behind the one that does not fit");
  bytes.leave(6);
  await new Promise(setImmediate);
  assert.deepEqual([order, bytes.taken], [[6, 5, 1], 6]);
  bytes.leave(5);
  bytes.leave(1);
  await new Promise(setImmediate);
  assert.deepEqual([order, bytes.taken], [[6, 5, 1, 30], 30]);
  bytes.leave(30);
  await all;
  assert.deepEqual([order, bytes.taken, bytes.waiting], [[6, 5, 1, 30, 2], 2, 0]);
});

void test("when a large caller gives up, the smaller ones behind it enter, and too many that wait are refused", async () => {
  const bytes = new Semaphore(10, 2);
  await bytes.enter({ units: 5 });
  const large = bytes.enter({ units: 9, waitMs: 20 });
  const small = bytes.enter({ units: 1 });
  await assert.rejects(bytes.enter(), { name: "TOO_MANY_REQUESTS" });
  assert.deepEqual([await large, await small, bytes.taken], [false, true, 6]);
});
