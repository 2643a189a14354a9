// One thing at a time per sandbox.
import assert from "node:assert/strict";
import { test } from "node:test";
import { openTurns } from "../src/node/turns.ts";

void test("what is asked of one sandbox happens in the order it was asked, what is asked of another does not wait", async () => {
  const turns = openTurns();
  const order: string[] = [];
  const step = (name: string, ms: number) => async () => {
    order.push(`${name} begins`);
    await new Promise((resolve) => setTimeout(resolve, ms));
    order.push(`${name} ends`);
    return name;
  };
  const results = await Promise.all([turns.run("a", step("a1", 30)), turns.run("a", step("a2", 0)), turns.run("b", step("b", 0))]);
  assert.deepEqual(results, ["a1", "a2", "b"]);
  assert.ok(order.indexOf("a1 ends") < order.indexOf("a2 begins"));
  assert.ok(order.indexOf("b ends") < order.indexOf("a1 ends"));
});

void test("a failure is its asker's alone: the next turn comes all the same", async () => {
  const turns = openTurns();
  const failing = turns.run("a", () => Promise.reject(new Error("no")));
  const next = turns.run("a", async () => "yes");
  await assert.rejects(failing, /no/);
  assert.equal(await next, "yes");
});

void test("more than 64 requests for one sandbox are refused, its end is not", async () => {
  const turns = openTurns();
  let release = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  const waiting = Array.from({ length: 64 }, () => turns.run("a", () => held));
  await assert.rejects(
    turns.run("a", async () => {}),
    { name: "TOO_MANY_REQUESTS", retryAfterSeconds: 1 },
  );
  const last = turns.runLast("a", async () => "ended");
  release();
  await Promise.all(waiting);
  assert.equal(await last, "ended");
  assert.equal(await turns.run("a", async () => "again"), "again");
});
