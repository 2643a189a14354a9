// Tests that a snapshot and digests are read on another thread: queries are answered, changes wait, and nothing that came meanwhile is
// lost.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as tick } from "node:timers/promises";
import { Packr } from "msgpackr";
import { metricsOf, type NativeIndex, type NativeQuery, openIndex, outcomes } from "../src/index/native.ts";
import { WriteBarrier } from "../src/index/write-barrier.ts";
import { snapshotPath } from "./copies.ts";

const packr = new Packr({ useRecords: false });
const blockSize = 4;
const EVENT_BLOCKS = 1024;
const EVENTS = 1500;
const ENOUGH = 20;
const query: NativeQuery = { tenant: "default", model: "m", lora: "", salt: "", blockSize, instance: "" };

function tokensOf(event: number): Uint32Array {
  return Uint32Array.from({ length: EVENT_BLOCKS * blockSize }, (_, i) => event * 5000 + i);
}

/** Fills an index with some million blocks, so that reading it takes long enough for much to happen meanwhile. */
function filled(): { index: NativeIndex; send: (event: number) => void } {
  const index = openIndex(1024 ** 3, 1337n);
  const id = index.subscribe({ instance: "e", tenant: "default", model: "m", lora: "", salt: "", key: "e", blockSize, rank: 0, store: 0 });
  const counts = new Uint32Array(outcomes.length);
  let sequence = 0;
  const send = (event: number): void => {
    const tokens = tokensOf(event);
    const payload = packr.pack([1.5, [{ event_type: "stored", seq_hashes: [...index.sequences(tokens, blockSize)], token_ids: [...tokens] }], 0]);
    assert.equal(index.apply(id, sequence++, payload, counts, new Float64Array(1)), 1);
  };
  for (let event = 0; event < EVENTS; event++) send(event);
  return { index, send };
}

async function answeredUntil(index: NativeIndex, end: Promise<unknown>): Promise<number> {
  let ended = false;
  void end.then(() => {
    ended = true;
  });
  const tokens = tokensOf(7);
  for (let answered = 0; ; answered++) {
    await tick();
    if (ended) return answered;
    const answer = JSON.parse(index.answer(query, tokens).toString()) as { default: { e: { GPU: number } } };
    assert.equal(answer.default.e.GPU, tokens.length);
  }
}

/** A read that ended before the first query shows nothing, so several are tried; a blocked index would answer at most once each time. */
async function mostAnswered(index: NativeIndex, read: () => Promise<unknown>): Promise<number> {
  let most = 0;
  for (let attempt = 0; attempt < 20 && most <= ENOUGH; attempt++) most = Math.max(most, await answeredUntil(index, read()));
  return most;
}

void test("queries are answered while a snapshot is made and while digests are computed, and later changes are not in them", async () => {
  const { index, send } = filled();
  const path = snapshotPath();
  assert.ok((await mostAnswered(index, () => index.save(path, "note"))) > ENOUGH);
  assert.ok((await mostAnswered(index, () => index.tally())) > ENOUGH);
  const blocks = EVENTS * EVENT_BLOCKS;
  assert.equal((JSON.parse(await index.tally()) as { blocks: number }[])[0]?.blocks, blocks);

  // Without write-barrier.ts a change blocks until the read is over: it is in the index, but not in the snapshot.
  const another = index.save(path, "note");
  send(EVENTS);
  assert.equal(metricsOf(index).blocks, blocks + EVENT_BLOCKS);
  const copy = openIndex(1024 ** 3, 1337n);
  await another;
  copy.load(path);
  assert.equal(metricsOf(copy).blocks, blocks);
});

void test("changes of the index wait for reads, and a steady flow of readers starves no writer", async () => {
  const writeBarrier = new WriteBarrier();
  const order: string[] = [];
  const read = async (name: string) => {
    await writeBarrier.during(async () => {
      order.push(`${name} begins`);
      await tick();
      order.push(`${name} ends`);
    });
  };
  const reads = ["first", "second", "third"].map(read);
  await tick();
  assert.notEqual(writeBarrier.over, undefined);
  const changed = writeBarrier.wait().then(() => {
    assert.equal(writeBarrier.over, undefined);
    order.push("changed");
  });
  await Promise.all([...reads, changed]);
  assert.deepEqual(order, ["first begins", "first ends", "changed", "second begins", "second ends", "third begins", "third ends"]);
  await assert.rejects(writeBarrier.during(() => Promise.reject(new Error("the read failed"))));
  assert.equal(writeBarrier.over, undefined);
});
