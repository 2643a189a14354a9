// Admission of starts: order, bound and wait.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { openAdmission } from "../src/node/supply/admission.ts";

void test("starts run a few at once, in the order they came, and a failing one frees its slot", async () => {
  const admission = openAdmission(2, 100, 60_000);
  const order: number[] = [];
  let most = 0;
  const work = (n: number) =>
    admission.run(async () => {
      order.push(n);
      most = Math.max(most, admission.running);
      await sleep(1);
      if (n === 3) throw new Error("three");
    });
  const results = await Promise.allSettled([...Array(20).keys()].map(work));
  assert.deepEqual(order, [...Array(20).keys()]);
  assert.equal(most, 2);
  assert.deepEqual(results.filter((result) => result.status === "rejected").length, 1);
  assert.equal(admission.running, 0);
});

void test("a full queue refuses with 429 and a Retry-After; a start that is not admitted in time is a timeout", async () => {
  const admission = openAdmission(1, 1, 30);
  let open = () => {};
  const first = admission.run(() => new Promise<void>((resolve) => (open = resolve)));
  const second = admission.run(async () => {});
  await assert.rejects(
    admission.run(async () => {}),
    // E2B's clients recognize by this text that a retry is useful.
    { name: "TOO_MANY_REQUESTS", retryAfterSeconds: 1, message: /maximum number of concurrent/ },
  );
  await assert.rejects(second, { name: "TIMED_OUT" });
  open();
  await first;
  await admission.run(async () => {});
  assert.equal(admission.waiting, 0);
});
