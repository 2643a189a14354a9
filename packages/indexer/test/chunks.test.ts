// LMCache under an engine: it keeps several of the engine's blocks as one chunk, under a name of its own.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { Match, QueryAnswer } from "@svc/contract/indexer.ts";
import { Packr } from "msgpackr";
import { type NativeIndex, openIndex, outcomes } from "../src/index/native.ts";

const packr = new Packr({ useRecords: false });
const SIZE = 16;
const CHUNK = 256;
const TOKENS = Array.from({ length: 3 * CHUNK }, (_, at) => 7 * at + 1);
const scope = { tenant: "default", model: "m", lora: "", salt: "", blockSize: SIZE };
const nameOf = (at: number) => BigInt(at + 1) << 40n;

function openEngine(index: NativeIndex = openIndex(64 * 1024 * 1024, 1337n), known?: number) {
  const id = known ?? index.subscribe({ ...scope, instance: "e", key: "e", rank: 0, store: 0, countsCopies: true });
  let sequence = 0;
  return {
    id,
    index,
    send(event: Record<string, unknown>) {
      const counts = new Uint32Array(outcomes.length);
      let taken = index.apply(id, sequence++, packr.pack([1.5, [event], 0]), counts, new Float64Array(1));
      while (taken === 2) taken = index.applyMore(id, counts);
      assert.equal(taken, 1);
      return Object.fromEntries(outcomes.map((name, at) => [name, counts[at]] as const).filter(([, count]) => count !== 0));
    },
    row(): Match {
      const answer = JSON.parse(index.answer({ ...scope, instance: "e" }, Uint32Array.from(TOKENS)).toString()) as QueryAnswer;
      return answer["default"]?.["e"] as Match;
    },
  };
}
type Engine = ReturnType<typeof openEngine>;

/** Sends one chunk per event, as LMCache does; the parent of SGLang's first chunk is 0. */
const keeps = (engine: Engine, at: number, { medium = "cpu", root = null as 0 | null, length = CHUNK } = {}) =>
  engine.send({
    type: "BlockStored",
    block_hashes: [nameOf(at)],
    parent_block_hash: at === 0 ? root : nameOf(at - 1),
    token_ids: TOKENS.slice(at * CHUNK, at * CHUNK + length),
    block_size: CHUNK,
    lora_id: null,
    medium,
  });
const drops = (engine: Engine, at: number, medium = "cpu") => engine.send({ type: "BlockRemoved", block_hashes: [nameOf(at)], medium });

for (const root of [null, 0] as const)
  void test(`chunks of 256 tokens are found in blocks of 16, each until it is dropped, where the first one's parent is ${root}`, () => {
    const engine = openEngine();
    for (const at of [0, 1, 2]) assert.deepEqual(keeps(engine, at, { root }), { events: 1, blocks_stored: 16 });
    assert.deepEqual([engine.row().CPU, engine.row().GPU], [768, 0]);
    // LMCache may report a chunk twice although it has it once, so one removal removes it.
    keeps(engine, 1);
    assert.deepEqual(drops(engine, 1), { events: 1, blocks_removed: 16 });
    assert.equal(engine.row().CPU, 256);
    assert.deepEqual(drops(engine, 1), { events: 1, removed_unknown: 1 });
    keeps(engine, 1);
    assert.equal(engine.row().CPU, 768);
  });

void test("chunks and the device's blocks of the same tokens come and go by themselves", () => {
  const engine = openEngine();
  const names = TOKENS.filter((_, at) => at % SIZE === 0).map((token) => BigInt(token) + 1000n);
  engine.send({ type: "BlockStored", block_hashes: names, parent_block_hash: null, token_ids: TOKENS, block_size: SIZE, medium: "GPU" });
  for (const at of [0, 1]) keeps(engine, at);
  assert.deepEqual([engine.row().GPU, engine.row().CPU], [768, 512]);
  drops(engine, 0);
  assert.deepEqual([engine.row().GPU, engine.row().CPU], [768, 0]);
  keeps(engine, 0);
  engine.send({ type: "BlockRemoved", block_hashes: names, medium: "GPU" });
  assert.deepEqual([engine.row().GPU, engine.row().CPU, engine.row().longest_matched], [0, 512, 512]);
  drops(engine, 0);
  drops(engine, 1);
  assert.equal(engine.row().longest_matched, 0);
});

void test("a last chunk that ends early counts as far as its whole blocks go", () => {
  const engine = openEngine();
  keeps(engine, 0);
  assert.deepEqual(keeps(engine, 1, { length: 40 }), { events: 1, blocks_stored: 2 });
  assert.equal(engine.row().CPU, 288);
  drops(engine, 1);
  assert.equal(engine.row().CPU, 256);
});

void test("a chunk of two tiers stays in one when the other drops it", () => {
  const engine = openEngine();
  for (const medium of ["cpu", "disk"]) keeps(engine, 0, { medium });
  drops(engine, 0);
  assert.deepEqual([engine.row().CPU, engine.row().DISK], [0, 256]);
  drops(engine, 0, "disk");
  assert.equal(engine.row().longest_matched, 0);
});

void test("a chunk whose parent was never named is refused by name, and blocks of the device keep their size", () => {
  const engine = openEngine();
  assert.equal(keeps(engine, 1)["parent_missing"], 1);
  assert.match(engine.index.complaint(engine.id), /names a parent that no event has named/);
  const device = engine.send({
    type: "BlockStored",
    block_hashes: [1n],
    parent_block_hash: null,
    token_ids: TOKENS.slice(0, CHUNK),
    block_size: CHUNK,
    medium: "GPU",
  });
  assert.equal(device["block_size_differs"], 1);
});

void test("a snapshot keeps the chunks' names, so that they can still be dropped", async () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-index-"));
  try {
    const engine = openEngine();
    for (const at of [0, 1]) keeps(engine, at);
    await engine.index.save(join(folder, "snapshot"), "");
    const loaded = openIndex(64 * 1024 * 1024, 1337n);
    loaded.load(join(folder, "snapshot"));
    const again = openEngine(loaded, engine.id);
    assert.equal(again.row().CPU, 512);
    drops(again, 0);
    assert.equal(again.row().longest_matched, 0);
    keeps(again, 0);
    assert.equal(again.row().CPU, 512);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
