// Tests that a batch larger than a slice is applied in slices, with the same result as small ones.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Packr } from "msgpackr";
import { MORE, type NativeIndex, openIndex, outcomeIndex, outcomes } from "../src/index/native.ts";

const packr = new Packr({ useRecords: false });
const blockSize = 2;
const BLOCKS = 100_000;

function engine(): { index: NativeIndex; apply: (...events: unknown[]) => { slices: number; counts: Uint32Array } } {
  const index = openIndex(128 * 1024 * 1024, 1337n);
  const id = index.subscribe({ instance: "e", tenant: "default", model: "m", lora: "", salt: "", key: "e", blockSize, rank: 0, store: 0 });
  let sequence = 0;
  return {
    index,
    apply(...events) {
      const payload = packr.pack([1.5, events, 0]);
      const counts = new Uint32Array(outcomes.length);
      const all = new Uint32Array(outcomes.length);
      let taken = index.apply(id, sequence++, payload, counts, new Float64Array(1));
      let slices = 1;
      for (; ; slices++) {
        counts.forEach((count, i) => {
          all[i] = (all[i] as number) + count;
        });
        if (taken !== MORE) break;
        taken = index.applyMore(id, counts);
      }
      return { slices, counts: all };
    },
  };
}

const tokens = Array.from({ length: BLOCKS * blockSize }, (_, i) => (i * 2654435761) % 150_000);
const names = Array.from({ length: BLOCKS }, (_, i) => BigInt(i) * 1_000_003n + 7n);
const stored = (from: number, to: number, more: object = {}) => ({
  type: "BlockStored",
  block_hashes: names.slice(from, to),
  parent_block_hash: from === 0 ? null : names[from - 1],
  token_ids: tokens.slice(from * blockSize, to * blockSize),
  block_size: blockSize,
  ...more,
});

void test("an event of a hundred thousand blocks is applied in slices, with the same result as a hundred events of a thousand", async () => {
  for (const more of [{}, { cache_salt: "s" }]) {
    const [one, many] = [engine(), engine()];
    const large = one.apply(stored(0, BLOCKS, more));
    assert.ok(large.slices >= 10, String(large.slices));
    assert.equal(large.counts[outcomeIndex.blocks_stored], BLOCKS);
    for (let from = 0; from < BLOCKS; from += 1000) many.apply(stored(from, from + 1000, more));
    assert.equal(await one.index.tally(), await many.index.tally());
    const removed = one.apply({ type: "BlockRemoved", block_hashes: names.slice(50), ...(more as object) });
    assert.ok(removed.slices >= 10, String(removed.slices));
    assert.equal(removed.counts[outcomeIndex.blocks_removed], BLOCKS - 50);
  }
});

void test("the extra keys of a large event belong to their own blocks, in every part of it", async () => {
  const extras = Array.from({ length: BLOCKS }, (_, block) => (block % 5000 === 17 ? [["image", block]] : null));
  const [one, many] = [engine(), engine()];
  assert.equal(one.apply(stored(0, BLOCKS, { extra_keys: extras })).counts[outcomeIndex.multimodal_blocks], BLOCKS / 5000);
  for (let from = 0; from < BLOCKS; from += 1000) many.apply(stored(from, from + 1000, { extra_keys: extras.slice(from, from + 1000) }));
  assert.equal(await one.index.tally(), await many.index.tally());
});

void test("a large event that is refused, or was there already, is treated as a whole and counted once", () => {
  const { apply } = engine();
  const refused = apply(stored(0, BLOCKS, { model_name: "another" }));
  assert.equal(refused.counts[outcomeIndex.model_differs], 1);
  const numbered = { event_type: "stored", event_id: 5, seq_hashes: names, parent_hash: null, token_ids: tokens };
  apply(numbered);
  const again = apply(numbered);
  assert.equal(again.counts[outcomeIndex.duplicate_event_id], 1);
  assert.equal(again.counts[outcomeIndex.blocks_stored], 0);
});
