// Tests the memory budget, and events that the engines' own structures can hardly express: bigram keys, parked events, hostile msgpack.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Packr } from "msgpackr";
import { metricsOf, type NativeIndex, type NativeQuery, openIndex, outcomeIndex, outcomes } from "../src/index/native.ts";

const packr = new Packr({ useRecords: false });
const counts = new Uint32Array(outcomes.length);
const query: NativeQuery = { tenant: "default", model: "m", lora: "", salt: "", blockSize: 4, instance: "" };
let sequence = 0;

function open(budgetBytes: number): { index: NativeIndex; id: number } {
  const index = openIndex(budgetBytes, 1337n);
  return { index, id: index.subscribe({ instance: "e", tenant: "default", model: "m", lora: "", salt: "", key: "e", blockSize: 4, rank: 0, store: 0 }) };
}
function send(index: NativeIndex, id: number, ...events: unknown[]): number {
  return index.apply(id, sequence++, packr.pack([1.5, events, 0]), counts, new Float64Array(1));
}
function longest(index: NativeIndex, tokens: readonly number[]): number {
  return (JSON.parse(index.answer(query, Uint32Array.from(tokens)).toString()) as { default: { e: { longest_matched: number } } }).default.e.longest_matched;
}

void test("the budget is never exceeded, and prefixes in use stay while others are evicted", () => {
  const budget = 16 * 1024 * 1024;
  const { index, id } = open(budget);
  const chain = (number: number) => Array.from({ length: 4 * 64 }, (_, i) => number * 1000 + i);
  const names = (number: number) => Array.from({ length: 64 }, (_, i) => BigInt(number) * 1000n + BigInt(i) + 1n);
  for (let number = 0; number < 12_000; number++) {
    send(index, id, ["BlockStored", names(number), null, chain(number), 4, null, "GPU"]);
    if (number % 50 === 0) assert.equal(longest(index, chain(0)), 256);
    assert.ok(metricsOf(index).bytes <= budget);
  }
  assert.ok(metricsOf(index).evictedBlocks > 100_000);
  assert.equal(longest(index, chain(11_999)), 256);
  assert.equal(longest(index, chain(1)), 0);
});

void test("bigram keys match only if the token after a block agrees as well", () => {
  const { index, id } = open(16 * 1024 * 1024);
  const tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9];
  const pairs = tokens.slice(0, 8).map((token, i) => [token, tokens[i + 1]]);
  send(index, id, { type: "BlockStored", block_hashes: [11, 12], parent_block_hash: null, token_ids: pairs, block_size: 4, lora_id: null });
  assert.equal(longest(index, tokens), 8);
  assert.equal(longest(index, tokens.slice(0, 8)), 4);
  assert.equal(longest(index, [...tokens.slice(0, 8), 10]), 4);
});

void test("an event whose parent is unknown waits, is not a root, and blocks removed meanwhile stay removed", () => {
  const { index, id } = open(16 * 1024 * 1024);
  const tokens = Array.from({ length: 16 }, (_, i) => i);
  send(index, id, ["BlockStored", [3, 4], 2, tokens.slice(8, 16), 4, null, "GPU"]);
  assert.equal(counts[outcomeIndex.parked], 1);
  assert.equal(longest(index, tokens.slice(8)), 0);
  send(index, id, ["BlockRemoved", [4], "GPU"]);
  send(index, id, ["BlockStored", [1, 2], null, tokens.slice(0, 8), 4, null, "GPU"]);
  assert.equal(counts[outcomeIndex.unparked], 1);
  assert.equal(longest(index, tokens), 12);
  for (let i = 0; i < 5000; i++) send(index, id, ["BlockStored", [BigInt(i) + 10_000n], 999_999, tokens.slice(0, 4), 4, null, "GPU"]);
  assert.ok(index.parked(id) <= 1024);
});

void test("a rolling hash that fits its parent's is placed by itself, and one inside a chain without a parent is refused", () => {
  const { index, id } = open(16 * 1024 * 1024);
  const tokens = Array.from({ length: 16 }, (_, i) => i + 50);
  const hashes = [...index.sequences(Uint32Array.from(tokens), 4)];
  send(index, id, { event_type: "stored", seq_hashes: hashes.slice(1), parent_hash: hashes[0], token_ids: tokens.slice(4) });
  assert.equal(longest(index, tokens), 0);
  send(index, id, { event_type: "stored", seq_hashes: hashes.slice(0, 1), base_block_idx: 0 });
  assert.equal(longest(index, tokens), 16);
  const { index: other, id: otherId } = open(16 * 1024 * 1024);
  send(other, otherId, { event_type: "stored", seq_hashes: [5], base_block_idx: 3, token_ids: [1, 2, 3, 4] });
  assert.equal(counts[outcomeIndex.parent_missing], 1);
  send(other, otherId, { event_type: "stored", seq_hashes: [5], base_block_idx: 0, token_ids: [1, 2, 3, 4] });
  assert.equal(counts[outcomeIndex.wrong_seed], 1);
  assert.match(other.complaint(otherId), /seed 1337/);
});

void test("msgpack with false lengths or endless nesting is refused without harm", () => {
  const { index, id } = open(16 * 1024 * 1024);
  const hostile = [
    "93cb0000000000000000dd7fffffff",
    "93cb000000000000000091dcffff",
    `93cb000000000000000091${"91".repeat(100_000)}c0`,
    "93cb00000000000000009193ab426c6f636b53746f726564ddffffffffc0",
    "93cb00000000000000009192ac426c6f636b52656d6f766564c6ffffffff00",
    "",
    "c1",
  ];
  for (const bytes of hostile) assert.equal(index.apply(id, sequence++, Buffer.from(bytes, "hex"), counts, new Float64Array(1)), 0, bytes.slice(0, 40));
  assert.equal(metricsOf(index).blocks, 0);
});
