// Tests that the loop is shared by peers, and not in proportion to their demand.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay, setImmediate as tick } from "node:timers/promises";
import { Contention } from "../src/index/contention.ts";
import { Intake } from "../src/index/intake.ts";
import { LoopShare } from "../src/index/loop-share.ts";
import { PendingBudget } from "../src/index/order.ts";
import { WriteBarrier } from "../src/index/write-barrier.ts";

void test("one peer's thousand jobs do not delay another peer's single one", async () => {
  const share = new LoopShare(0);
  const order: string[] = [];
  assert.equal(share.open, true);
  const all = Array.from({ length: 1000 }, (_, n) => share.run("flood", () => void order.push(`flood ${n}`)));
  all.push(share.run("other", () => void order.push("other")));
  await Promise.all(all);
  assert.ok(order.indexOf("other") <= 2, String(order.indexOf("other")));
  assert.equal(order.length, 1001);
  await tick();
  await tick();
  assert.equal(share.open, true);
});

void test("a job that fails rejects its own caller, and the jobs after it run", async () => {
  const share = new LoopShare(0);
  assert.equal(share.open, true);
  const fails = Promise.resolve(share.run("a", () => assert.fail("no")));
  const runs = share.run("a", () => 7);
  await assert.rejects(fails);
  assert.equal(await runs, 7);
});

void test("nothing changes the index between a large batch's slices, and a read waits until the batch is complete", async () => {
  const writeBarrier = new WriteBarrier();
  const intake = new Intake(writeBarrier, new PendingBudget(1 << 20));
  const order: string[] = [];
  let slices = 0;
  assert.equal(
    intake.run("large", () => {
      order.push("first slice");
      intake.applySlices(() => {
        order.push("slice");
        return ++slices < 3;
      });
    }),
    undefined,
  );
  const other = intake.run("other", () => void order.push("other"));
  const read = writeBarrier.during(async () => void order.push("read"));
  await Promise.all([other, read]);
  assert.deepEqual(order.slice(0, 4), ["first slice", "slice", "slice", "slice"]);
  assert.deepEqual(order.slice(4).sort(), ["other", "read"]);
});

/**
 * Runs peers that always have more messages, each a tenth of a millisecond to receive and another to apply. Returns the messages applied in
 * each tick of the loop, and by peer.
 */
async function flooded(requestsMs: number, contended = false): Promise<{ perTick: number[]; byPeer: number[] }> {
  const intake = new Intake(new WriteBarrier(), new PendingBudget(1 << 20), () => requestsMs, { found: contended });
  const byPeer = Array.from({ length: 32 }, () => 0);
  const perTick: number[] = [];
  let applied = 0;
  let over = false;
  const spin = (): void => {
    for (const until = performance.now() + 0.1; performance.now() < until; );
  };
  const peers = byPeer.map(async (_, peer) => {
    while (!over) {
      await intake.enter(`${peer}`);
      spin();
      await intake.run(`${peer}`, () => {
        spin();
        applied++;
        byPeer[peer] = (byPeer[peer] ?? 0) + 1;
      });
    }
  });
  for (let turns = 0; turns < 400; turns++) {
    const before = applied;
    await tick();
    perTick.push(applied - before);
  }
  over = true;
  await Promise.all(peers);
  // At first all peers come at the same time.
  return { perTick: perTick.slice(50), byPeer };
}

void test("while 32 publishers stream, a query waits for a few of their messages and not for one of each, and each publisher has its share", async () => {
  const { perTick, byPeer } = await flooded(0);
  assert.ok(Math.max(...perTick) <= 4, String(perTick));
  assert.ok(Math.max(...byPeer) - Math.min(...byPeer) <= 2, String(byPeer));
  assert.ok(Math.min(...byPeer) > 0, String(byPeer));
});

void test("if queries take much of the loop, events get the same time", async () => {
  const { perTick } = await flooded(1.5);
  assert.ok(Math.max(...perTick) > 4, String(perTick));
  assert.ok(Math.max(...perTick) <= 16, String(perTick));
});

void test("if others want the cores and requests come, the loop sleeps between two slices; otherwise it does not", async () => {
  const idleTicks = async (requestsMs: number, contended: boolean): Promise<number> => {
    const { perTick } = await flooded(requestsMs, contended);
    return perTick.filter((applied) => applied === 0).length / perTick.length;
  };
  assert.ok((await idleTicks(0.1, true)) > 0.5);
  assert.equal(await idleTicks(0, true), 0);
  assert.equal(await idleTicks(0.1, false), 0);
});

void test("a share with pauses makes one after each slice that left something undone, and all work is done", async () => {
  let rests = 0;
  const share = new LoopShare(0, () => ++rests && 1);
  assert.equal(share.open, true);
  let done = 0;
  await Promise.all(Array.from({ length: 10 }, () => share.run("a", () => void done++)));
  assert.deepEqual([done, rests], [10, 10]);
});

void test("a thread that waits for a core more than a twentieth of the time is contended, and so is one whose waiting is not counted", async () => {
  let waitedMs: number | undefined = 0;
  const contention = new Contention(() => waitedMs);
  assert.equal(contention.found, false);
  for (const [more, found] of [
    [1e6, true],
    [0, false],
    [undefined, true],
  ] as const) {
    waitedMs = more === undefined ? undefined : (waitedMs ?? 0) + more;
    await delay(150);
    assert.equal(contention.found, found);
  }
  // The kernel's own count can be read here.
  assert.equal(typeof new Contention().found, "boolean");
});
