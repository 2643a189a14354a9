// Compares tables that grow in use, and eviction in slices, with plain sets: every block that is stored is found, and no other.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Packr } from "msgpackr";
import { metricsOf, type NativeQuery, openIndex, outcomes } from "../src/index/native.ts";
import { copyInto } from "./copies.ts";

const packr = new Packr({ useRecords: false });
const blockSize = 2;
const CHAIN = 8;
const query: NativeQuery = { tenant: "default", model: "m", lora: "", salt: "", blockSize, instance: "" };

class Publisher {
  readonly index;
  readonly #id: number;
  readonly #standard: boolean;
  readonly #counts = new Uint32Array(outcomes.length);
  #sequence = 0;

  constructor(budgetBytes: number, standard: boolean) {
    this.index = openIndex(budgetBytes, 1337n);
    this.#standard = standard;
    this.#id = this.index.subscribe({ instance: "e", tenant: "default", model: "m", lora: "", salt: "", key: "e", blockSize, rank: 0, store: 0 });
  }
  tokens(chain: number): Uint32Array {
    return Uint32Array.from({ length: CHAIN * blockSize }, (_, i) => chain * 100 + i);
  }
  names(chain: number): bigint[] {
    if (this.#standard) return [...this.index.sequences(this.tokens(chain), blockSize)];
    return Array.from({ length: CHAIN }, (_, depth) => BigInt.asUintN(64, BigInt(chain * CHAIN + depth + 1) * 0x9e3779b97f4a7c15n));
  }
  send(event: unknown[]): void {
    assert.equal(this.index.apply(this.#id, this.#sequence++, packr.pack([1.5, [event], 0]), this.#counts, new Float64Array(1)), 1);
  }
  store(chain: number): void {
    this.send(["BlockStored", this.names(chain), null, [...this.tokens(chain)], blockSize, null, "GPU"]);
  }
  remove(chain: number, from: number): void {
    this.send(["BlockRemoved", this.names(chain).slice(from), "GPU"]);
  }
  held(chain: number): number {
    const answer = JSON.parse(this.index.answer(query, this.tokens(chain)).toString()) as { default: { e: { GPU: number } } };
    return answer.default.e.GPU / blockSize;
  }
}

/** A seeded generator, so that a failure can be repeated. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

for (const standard of [true, false])
  void test(`an index with growing tables finds exactly the stored blocks, by ${standard ? "the standard's hashes" : "names of a publisher's own"}`, async () => {
    const publisher = new Publisher(256 * 1024 * 1024, standard);
    const upTo = numbers(standard ? 7 : 8);
    const held = new Map<number, number>();
    for (let chain = 0; chain < 15_000; chain++) {
      publisher.store(chain);
      held.set(chain, CHAIN);
      const gone = upTo(chain + 1);
      if (upTo(3) === 0) {
        const from = Math.min(held.get(gone) ?? 0, upTo(CHAIN));
        publisher.remove(gone, from);
        held.set(gone, from);
      }
      if (upTo(20) === 0) {
        publisher.store(gone);
        held.set(gone, CHAIN);
      }
      for (const asked of [chain, gone, upTo(chain + 1)]) assert.equal(publisher.held(asked), held.get(asked), `chain ${asked} after ${chain}`);
    }
    for (const [chain, blocks] of held) assert.equal(publisher.held(chain), blocks, `chain ${chain} in the end`);

    // Nearly all blocks are removed, and the tables start small again between free numbers, while others are added and removed.
    publisher.send(["AllBlocksCleared"]);
    held.clear();
    for (let chain = 20_000; chain < 32_000; chain++) {
      if (chain % 3 === 0) publisher.index.reclaim(2000);
      publisher.store(chain);
      held.set(chain, CHAIN);
      const gone = 20_000 + upTo(chain - 20_000 + 1);
      if (upTo(2) === 0) {
        publisher.remove(gone, 0);
        held.set(gone, 0);
      }
      for (const asked of [chain, gone, upTo(15_000)]) assert.equal(publisher.held(asked), held.get(asked) ?? 0, `chain ${asked} after ${chain}`);
    }
    for (const [chain, blocks] of held) assert.equal(publisher.held(chain), blocks, `chain ${chain} in the very end`);
    const copy = openIndex(256 * 1024 * 1024, 1337n);
    await copyInto(copy, publisher.index);
    assert.equal(await copy.tally(), await publisher.index.tally());
  });

void test("at the full budget the least recently used prefixes are evicted, a few at a time, and queried ones stay", async () => {
  const budget = 12 * 1024 * 1024;
  const publisher = new Publisher(budget, false);
  let most = 0;
  for (let chain = 0, before = 0; chain < 60_000; chain++) {
    publisher.store(chain);
    if (chain % 20 === 0) assert.equal(publisher.held(0), CHAIN);
    const { bytes, evictedBlocks } = metricsOf(publisher.index);
    assert.ok(bytes <= budget, `${bytes} after ${chain}`);
    most = Math.max(most, evictedBlocks - before);
    before = evictedBlocks;
    assert.equal(publisher.held(chain), CHAIN);
  }
  assert.ok(metricsOf(publisher.index).evictedBlocks > 100_000);
  assert.ok(most > 0 && most <= 8192 + 64, String(most));
  // An early chain was evicted. It is not the second one, which shares a page with the first and stays with it.
  assert.equal(publisher.held(100), 0);
  // The index is full, with free numbers between its blocks.
  const copy = openIndex(budget, 1337n);
  await copyInto(copy, publisher.index);
  assert.equal(await copy.tally(), await publisher.index.tally());
  assert.ok(metricsOf(copy).bytes <= budget);
});
