// The keyed lock: order, independence of keys, and the limit.
import assert from "node:assert/strict";
import { test } from "node:test";
import { openKeyedLock } from "../src/keyed-lock.ts";

void test("work under one key runs in the order of the calls, and work under another key does not wait", async () => {
  const lock = openKeyedLock("sandbox", 64);
  const order: string[] = [];
  const step = (name: string, ms: number) => async () => {
    order.push(`${name} begins`);
    await new Promise((resolve) => setTimeout(resolve, ms));
    order.push(`${name} ends`);
    return name;
  };
  const results = await Promise.all([lock.run("a", step("a1", 30)), lock.run("a", step("a2", 0)), lock.run("b", step("b", 0))]);
  assert.deepEqual(results, ["a1", "a2", "b"]);
  assert.ok(order.indexOf("a1 ends") < order.indexOf("a2 begins"));
  assert.ok(order.indexOf("b ends") < order.indexOf("a1 ends"));
});

void test("a failure affects only its caller: the next work under the key runs all the same", async () => {
  const lock = openKeyedLock("sandbox", 64);
  const failing = lock.run("a", () => Promise.reject(new Error("no")));
  const next = lock.run("a", async () => "yes");
  await assert.rejects(failing, /no/);
  assert.equal(await next, "yes");
});

void test("work beyond the limit under one key is refused, except the key's removal", async () => {
  const lock = openKeyedLock("sandbox", 64);
  let release = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  const waiting = Array.from({ length: 64 }, () => lock.run("a", () => held));
  await assert.rejects(
    lock.run("a", async () => {}),
    { name: "TOO_MANY_REQUESTS", message: "64 requests for sandbox 'a' are pending; the maximum is 64, try again later", retryAfterSeconds: 1 },
  );
  const last = lock.runUnbounded("a", async () => "ended");
  release();
  await Promise.all(waiting);
  assert.equal(await last, "ended");
  assert.equal(await lock.run("a", async () => "again"), "again");
});
