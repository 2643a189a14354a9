// The loop is shared: by peers and not by how much each of them asks for.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { Intake } from "../src/intake.ts";
import { WaitingRoom } from "../src/order.ts";
import { Slots } from "../src/slots.ts";
import { Stillness } from "../src/stillness.ts";
import { Turns } from "../src/turns.ts";

void test("one peer's thousand jobs do not keep another peer's one waiting", async () => {
  const turns = new Turns(0);
  const order: string[] = [];
  assert.equal(turns.open, true);
  const all = Array.from({ length: 1000 }, (_, n) => turns.run("flood", () => void order.push(`flood ${n}`)));
  all.push(turns.run("other", () => void order.push("other")));
  await Promise.all(all);
  assert.ok(order.indexOf("other") <= 2, String(order.indexOf("other")));
  assert.equal(order.length, 1001);
  await turn();
  await turn();
  assert.equal(turns.open, true);
});

void test("work that fails fails for who asked for it, and what waits behind it runs", async () => {
  const turns = new Turns(0);
  assert.equal(turns.open, true);
  const fails = Promise.resolve(turns.run("a", () => assert.fail("no")));
  const runs = turns.run("a", () => 7);
  await assert.rejects(fails);
  assert.equal(await runs, 7);
});

void test("nothing changes the index between a large batch's slices, and a read waits until it is whole", async () => {
  const stillness = new Stillness();
  const intake = new Intake(stillness, new WaitingRoom(1 << 20));
  const order: string[] = [];
  let slices = 0;
  assert.equal(
    intake.run("large", () => {
      order.push("first slice");
      intake.goOn(() => {
        order.push("slice");
        return ++slices < 3;
      });
    }),
    undefined,
  );
  const other = intake.run("other", () => void order.push("other"));
  const read = stillness.during(async () => void order.push("read"));
  await Promise.all([other, read]);
  assert.deepEqual(order.slice(0, 4), ["first slice", "slice", "slice", "slice"]);
  assert.deepEqual(order.slice(4).sort(), ["other", "read"]);
});

void test("slots are passed on in order, and who gives up waiting gets none", async () => {
  const slots = new Slots(1);
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
