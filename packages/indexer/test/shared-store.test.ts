// A store whose keys have engines' block hashes, as vLLM's MooncakeStoreConnector makes them: the store's own events say what engines can load from it.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { Match, QueryAnswer } from "@svc/contract/indexer.ts";
import { Packr } from "msgpackr";
import { type NativeIndex, openIndex, outcomes } from "../src/index/native.ts";

const packr = new Packr({ useRecords: false });
const SIZE = 4;
const TOKENS = Array.from({ length: 12 }, (_, at) => at + 1);
/** Hashes of 32 bytes, as vLLM computes them; events have their last 8 bytes. */
const HASHES = ["11", "22", "33"].map((pair) => pair.repeat(32));
const NAMES = HASHES.map((hash) => BigInt(`0x${hash.slice(-16)}`));
const keyOf = (hash: string, { head = "m", rank = 0, group = 0 } = {}) => `${head}@tp_rank:${rank}@pcp0@dcp0@pp_rank:0@group:${group}@${hash}`;
const scope = { tenant: "default", model: "m", lora: "", salt: "", blockSize: SIZE };

function open(index: NativeIndex = openIndex(64 * 1024 * 1024, 1337n)) {
  let sequence = 0;
  const apply = (id: number, event: object) => {
    const counts = new Uint32Array(outcomes.length);
    let taken = index.apply(id, sequence++, packr.pack([1.5, [event], 0]), counts, new Float64Array(1));
    while (taken === 2) taken = index.applyMore(id, counts);
    assert.equal(taken, 1);
    return Object.fromEntries(outcomes.map((name, at) => [name, counts[at]] as const).filter(([, count]) => count !== 0));
  };
  const subscribe = (instance: string, store: 0 | 1, more: object = {}) =>
    index.subscribe({ ...scope, instance, key: `${instance} ${store}`, rank: 0, store, countsCopies: store === 0, ...more });
  let eventID = 1;
  return {
    index,
    subscribe,
    computes: (id: number, more: object = {}) =>
      apply(id, { type: "BlockStored", block_hashes: NAMES, parent_block_hash: null, token_ids: TOKENS, block_size: SIZE, medium: "GPU", ...more }),
    evicts: (id: number) => apply(id, { type: "BlockRemoved", block_hashes: NAMES, medium: "GPU" }),
    apply,
    /** Applies a put in the form that the store's master reports. */
    puts: (id: number, key: string, medium = "cpu") =>
      apply(id, {
        event_id: eventID++,
        event_type: "stored",
        type: "BlockStored",
        seq_hashes: [],
        block_hashes: [],
        object_key: key,
        tenant_id: "default",
        medium,
        base_block_idx: 0,
      }),
    drops: (id: number, key: string, medium = "cpu") =>
      apply(id, {
        event_id: eventID++,
        event_type: "removed",
        type: "BlockRemoved",
        seq_hashes: [],
        block_hashes: [],
        object_key: key,
        tenant_id: "default",
        medium,
      }),
    row(instance: string, asked: object = {}, tokens: readonly number[] = TOKENS): Match {
      const answer = JSON.parse(index.answer({ ...scope, instance: "", ...asked }, Uint32Array.from(tokens)).toString()) as QueryAnswer;
      return answer["default"]?.[instance] as Match;
    },
  };
}

void test("blocks that one engine put into a store are found for every engine that shares it, until the store drops them", () => {
  const { subscribe, computes, evicts, puts, drops, row } = open();
  const [a, , store] = [subscribe("a", 0), subscribe("b", 0), subscribe("pool", 1)];
  computes(a);
  for (const hash of HASHES) assert.deepEqual(puts(store, keyOf(hash)), { events: 1, blocks_stored: 1 });
  assert.deepEqual([row("a").GPU, row("a").CPU, row("b").GPU, row("b").CPU, row("b").longest_matched], [12, 12, 0, 12, 12]);
  evicts(a);
  assert.equal(row("a").longest_matched, 12);
  assert.deepEqual(drops(store, keyOf(HASHES[1] as string)), { events: 1, blocks_removed: 1 });
  assert.deepEqual([row("a").longest_matched, row("b").longest_matched], [4, 4]);
  drops(store, keyOf(HASHES[0] as string));
  assert.deepEqual([row("a").longest_matched, row("b").longest_matched], [0, 0]);
});

void test("an engine's own report of what it put into a store does not count in addition to the store's report", () => {
  const { subscribe, computes, apply, puts, drops, row } = open();
  const [a, store] = [subscribe("a", 0), subscribe("pool", 1)];
  computes(a);
  const put = { type: "BlockStored", block_hashes: NAMES, parent_block_hash: null, token_ids: TOKENS, block_size: SIZE, medium: "cpu", group_idx: 0 };
  apply(a, put);
  assert.equal(row("a").CPU, 12, "without such a store, the engine's word is all there is");
  puts(store, keyOf(HASHES[0] as string));
  assert.equal(row("a").CPU, 4);
  drops(store, keyOf(HASHES[0] as string));
  assert.equal(row("a").CPU, 0);
  // The engine forgets its device's blocks, and the store keeps its own.
  puts(store, keyOf(HASHES[0] as string));
  apply(a, { type: "AllBlocksCleared" });
  assert.deepEqual([row("a").GPU, row("a").CPU], [0, 4]);
});

void test("an object that the store reports before the engine names its block is found once the engine does", () => {
  const { subscribe, computes, puts, drops, row } = open();
  const [a, store] = [subscribe("a", 0), subscribe("pool", 1)];
  for (const hash of HASHES) assert.deepEqual(puts(store, keyOf(hash)), { events: 1, parked: 1 });
  drops(store, keyOf(HASHES[2] as string));
  assert.equal(row("a").CPU, 0);
  computes(a);
  assert.deepEqual([row("a").GPU, row("a").CPU], [12, 8]);
});

void test("a block of an engine with several ranks counts when the objects of all ranks are there", () => {
  const { subscribe, computes, puts, drops, row } = open();
  const [a, store] = [subscribe("a", 0), subscribe("pool", 1)];
  computes(a);
  for (const hash of HASHES) puts(store, keyOf(hash, { rank: 0 }));
  for (const hash of HASHES.slice(0, 2)) puts(store, keyOf(hash, { rank: 1 }));
  assert.equal(row("a").CPU, 8);
  drops(store, keyOf(HASHES[0] as string, { rank: 1 }));
  assert.equal(row("a").CPU, 0);
});

void test("keys of another model do not count, and where the registration does not say which model is meant, none counts and the complaint names both", () => {
  const { index, subscribe, computes, puts, row } = open();
  const [a, store] = [subscribe("a", 0), subscribe("pool", 1)];
  computes(a);
  puts(store, keyOf(HASHES[0] as string, { head: "other" }));
  assert.equal(row("a").CPU, 4, "the only model of the store may be served under another name");
  puts(store, keyOf(HASHES[0] as string, { head: "m" }));
  puts(store, keyOf(HASHES[1] as string, { head: "other" }));
  assert.equal(row("a").CPU, 4, "the model of the registration");
  puts(store, keyOf(HASHES[1] as string, { head: "prefix@m" }));
  assert.equal(row("a").CPU, 0);
  assert.match(index.complaint(store), /"prefix@m" and with "m"/);
});

void test("an engine with several groups finds in the store what all of its groups have there, and its own blocks do not fill the gaps", () => {
  const { subscribe, apply, puts, drops, row } = open();
  // Groups are matched up to the prompt's last token, which the engine computes.
  const found = (instance: string) => row(instance, {}, [...TOKENS, 99]);
  const [a, store] = [subscribe("a", 0), subscribe("pool", 1)];
  // gpt-oss: a sliding window of two blocks in the first group, full attention in the second.
  const groups = [
    { group_idx: 0, kv_cache_spec_kind: "sliding_window", kv_cache_spec_sliding_window: 5 },
    { group_idx: 1, kv_cache_spec_kind: "full_attention" },
  ];
  const stored = { type: "BlockStored", block_hashes: NAMES, parent_block_hash: null, token_ids: TOKENS, block_size: SIZE, medium: "GPU" };
  for (const group of groups) apply(a, { ...stored, ...group });
  assert.deepEqual([found("a").GPU, found("a").longest_matched], [12, 12]);
  for (const { group_idx } of groups) apply(a, { type: "BlockRemoved", block_hashes: NAMES, medium: "GPU", group_idx });
  assert.deepEqual([found("a").CPU, found("a").longest_matched], [0, 0]);
  for (const hash of HASHES) puts(store, keyOf(hash, { group: 1 }));
  assert.deepEqual([found("a").CPU, found("a").longest_matched], [0, 0], "full attention alone serves nothing");
  // The connector keeps only the last window of the other group.
  for (const hash of HASHES.slice(1)) puts(store, keyOf(hash, { group: 0 }));
  assert.deepEqual([found("a").GPU, found("a").CPU, found("a").longest_matched, found("a").DP["0"]], [0, 12, 12, 12]);
  assert.equal(found("pool").longest_matched, 0, "the store's own row counts its first group");
  drops(store, keyOf(HASHES[0] as string, { group: 1 }));
  assert.deepEqual([found("a").CPU, found("a").longest_matched], [0, 0]);
  apply(a, { ...stored, ...groups[1], block_hashes: NAMES.slice(0, 1), token_ids: TOKENS.slice(0, SIZE) });
  assert.equal(found("a").longest_matched, 0, "a block of the engine's own does not stand in for the store's");
});

void test("an engine with one group finds nothing in keys of further groups", () => {
  const { subscribe, computes, puts, row } = open();
  const [a, store] = [subscribe("a", 0), subscribe("pool", 1)];
  computes(a, { block_hashes: NAMES.slice(0, 1), token_ids: TOKENS.slice(0, SIZE) });
  for (const hash of HASHES) puts(store, keyOf(hash, { group: 1 }));
  assert.deepEqual([row("a").CPU, row("a").longest_matched], [0, 4]);
  assert.deepEqual(puts(store, keyOf(HASHES[0] as string, { group: 1_000_000 })), { events: 1, other_cache_group: 1 });
});

void test("a LoRA adapter's blocks in the store are that adapter's", () => {
  const { subscribe, computes, puts, row } = open();
  const [a, store] = [subscribe("a", 0), subscribe("pool", 1)];
  computes(a, { lora_name: "poet" });
  puts(store, keyOf(HASHES[0] as string));
  assert.equal(row("a", { lora: "n:poet" }).CPU, 4);
  assert.equal(row("a").CPU, 0);
});

void test("a snapshot keeps a store's objects, also those that wait for their names", async () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-index-"));
  try {
    const { index, subscribe, computes, puts } = open();
    const [a, store] = [subscribe("a", 0), subscribe("pool", 1)];
    computes(a, { block_hashes: NAMES.slice(0, 1), token_ids: TOKENS.slice(0, 4) });
    for (const hash of HASHES) puts(store, keyOf(hash));
    await index.save(join(folder, "snapshot"), "");
    const loaded = openIndex(64 * 1024 * 1024, 1337n);
    loaded.load(join(folder, "snapshot"));
    const again = open(loaded);
    assert.equal(again.row("a").CPU, 4);
    again.computes(a);
    assert.equal(again.row("a").CPU, 12);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

void test("a cache that is registered as its engine's instance counts for that instance alone, on all of its ranks", () => {
  const { index, subscribe, apply, row } = open();
  const daemon = subscribe("a", 1);
  for (const rank of [0, 1]) subscribe("a", 0, { rank, key: `a ${rank}` });
  subscribe("b", 0);
  const seq_hashes = [...index.sequences(Uint32Array.from(TOKENS), SIZE)];
  for (const [at, hash] of seq_hashes.entries())
    apply(daemon, { event_id: at + 1, event_type: "stored", seq_hashes: [hash], medium: "cpu", tenant_id: "default", backend_id: "daemon", base_block_idx: 0 });
  assert.deepEqual(row("a").DP, { "0": 12, "1": 12 });
  assert.deepEqual([row("a").CPU, row("b").CPU], [12, 0]);
});
