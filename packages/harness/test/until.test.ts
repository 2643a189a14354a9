// The waiting function of tests and benchmarks.
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../src/until.ts";

const BOUND_MS = 100;

void test("waiting returns the first value that appears", async () => {
  let looks = 0;
  assert.equal(await until("the third look", () => (++looks === 3 ? "there" : undefined), 1), "there");
  assert.equal(await until("a value that comes by a promise", async () => 0, 1), 0);
});

void test("waiting ends at its limit and names what did not happen, even if a read hangs", async () => {
  await assert.rejects(
    until("the thing", () => undefined, 1, BOUND_MS),
    /^Error: the thing: not within 100 ms$/,
  );
  await assert.rejects(
    until("the thing", () => new Promise<never>(() => undefined), 1, BOUND_MS),
    /^Error: the thing: not within 100 ms, and the last look at it hangs$/,
  );
});

void test("waiting ends with the error that a read throws", async () => {
  await assert.rejects(
    until("the thing", async () => {
      throw new Error("no such thing");
    }),
    /no such thing/,
  );
});
