// Tests what separates blocks: LoRA and salt next to the hash or in it, shards of one block; and what is freed when they are cleared.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Packr } from "msgpackr";
import { metricsOf, type NativeIndex, type NativeQuery, openIndex, outcomeIndex, outcomes } from "../src/index/native.ts";
import { copyInto } from "./copies.ts";

const packr = new Packr({ useRecords: false });
const counts = new Uint32Array(outcomes.length);
const blockSize = 4;
const tokens = Uint32Array.from({ length: 16 }, (_, i) => i + 50);
const scope: NativeQuery = { tenant: "default", model: "m", lora: "", salt: "", blockSize, instance: "" };
let sequence = 0;

type Row = { longest_matched: number; GPU: number; CPU: number; DISK: number };
class Engine {
  readonly index: NativeIndex = openIndex(256 * 1024 * 1024, 1337n);
  readonly id: number;
  constructor(store: 0 | 1 = 0) {
    this.id = this.index.subscribe({ instance: "e", tenant: "default", model: "m", lora: "", salt: "", key: "e", blockSize, rank: 0, store });
  }
  send(...events: unknown[]): void {
    assert.equal(this.index.apply(this.id, sequence++, packr.pack([1.5, events, 0]), counts, new Float64Array(1)), 1);
  }
  ask(list: Uint32Array | BigUint64Array, more: Partial<NativeQuery> = {}): Row {
    const answer = JSON.parse(this.index.answer({ ...scope, ...more }, list).toString()) as Record<string, Record<string, Row>>;
    return answer[more.tenant ?? "default"]?.["e"] ?? { longest_matched: 0, GPU: 0, CPU: 0, DISK: 0 };
  }
}

const plain = openIndex(16 * 1024 * 1024, 1337n).sequences(tokens, blockSize);
// These were made by another binding of XXH3 (Python's xxhash): local seeds 1337 + xxh3("adapter", 0) + xxh3("customer", 1), rolled under
// 1337.
const salted = BigUint64Array.from([12783831948604139138n, 2379888739538753041n, 6357025463818526026n, 6345120661812138321n]);

void test("a query by hash separates LoRA adapters and salts, whatever other namespaces call the same hashes", () => {
  const engine = new Engine();
  const stored = (to: number, more: object) => ({
    event_type: "stored",
    seq_hashes: [...plain.subarray(0, to)],
    token_ids: [...tokens.subarray(0, to * 4)],
    ...more,
  });
  engine.send(
    stored(1, {}),
    stored(2, { lora_name: "adapter" }),
    stored(3, { additional_salt: "customer" }),
    stored(4, { lora_name: "adapter", additional_salt: "customer" }),
  );
  assert.equal(counts[outcomeIndex.standard_hashes], 4);
  const depths = (list: Uint32Array | BigUint64Array) =>
    [{}, { lora: "n:adapter" }, { salt: "customer" }, { lora: "n:adapter", salt: "customer" }, { lora: "n:other" }].map(
      (more) => engine.ask(list, more).GPU / blockSize,
    );
  assert.deepEqual(depths(plain), [1, 2, 3, 4, 0]);
  assert.deepEqual(depths(tokens), [1, 2, 3, 4, 0]);
  engine.send({ event_type: "removed", seq_hashes: [plain[0]], lora_name: "adapter" });
  assert.deepEqual(depths(plain), [1, 0, 3, 4, 0]);
  engine.send({ event_type: "cleared", additional_salt: "customer" });
  assert.deepEqual(depths(plain), [1, 0, 0, 4, 0]);
});

void test("a namespace that was queried before any event named it is answered once one has, and not after it was cleared and others took its number", () => {
  const engine = new Engine();
  const more = [{}, { salt: "customer" }, { lora: "n:adapter" }] as const;
  const depths = () => more.map((each) => [engine.ask(plain, each).GPU, engine.ask(tokens, each).GPU]);
  const nothing = [0, 0];
  assert.deepEqual(depths(), [nothing, nothing, nothing]);
  const stored = (to: number, dimensions: object) =>
    engine.send({ event_type: "stored", seq_hashes: [...plain.subarray(0, to)], token_ids: [...tokens.subarray(0, to * 4)], ...dimensions });
  stored(2, { additional_salt: "customer" });
  assert.deepEqual(depths(), [nothing, [8, 8], nothing]);
  stored(3, {});
  assert.deepEqual(depths(), [[12, 12], [8, 8], nothing]);
  engine.send({ event_type: "cleared", additional_salt: "customer" });
  // Thousands of other namespaces come, and those that nothing needs are freed.
  for (let n = 0; n < 3000; n++) {
    stored(1, { additional_salt: `other ${n}` });
    engine.send({ event_type: "cleared", additional_salt: `other ${n}` });
    while (engine.index.reclaim(1 << 16) === 1);
  }
  stored(4, { lora_name: "adapter" });
  assert.deepEqual(depths(), [[12, 12], nothing, [16, 16]]);
});

void test("hashes that include LoRA and salt are found by the same hashes and by tokens, with or without tokens in their events", () => {
  const more = { lora: "n:adapter", salt: "customer" };
  const dimensions = { lora_name: "adapter", additional_salt: "customer" };
  const bare = new Engine();
  bare.send({ event_type: "stored", seq_hashes: [...salted], base_block_idx: 0, ...dimensions });
  const full = new Engine();
  full.send({ event_type: "stored", seq_hashes: [...salted], token_ids: [...tokens], ...dimensions });
  assert.equal(counts[outcomeIndex.wrong_seed], 0);
  for (const engine of [bare, full]) {
    for (const list of [salted, tokens]) {
      assert.equal(engine.ask(list, more).GPU, 16);
      assert.equal(engine.ask(list).GPU, 0);
    }
    engine.send({ event_type: "removed", seq_hashes: [salted[2]], ...dimensions });
    for (const list of [salted, tokens]) assert.equal(engine.ask(list, more).GPU, 8);
  }
  assert.equal(full.ask(plain, more).GPU, 8);
});

void test("a store's block that is kept in shards is there when every kind of shard that was ever seen is", async () => {
  const store = new Engine(1);
  const shard = (type: string, depth: number, tp_rank: number, layer_id: number | null = null) => ({
    event_type: type,
    seq_hashes: [plain[depth]],
    medium: "cpu",
    dp_rank: null,
    tp_rank,
    layer_id,
  });
  const cpu = () => store.ask(tokens).CPU;
  store.send(shard("stored", 0, 0));
  assert.equal(cpu(), 4);
  store.send(shard("stored", 0, 1));
  assert.equal(cpu(), 4);
  store.send(shard("stored", 1, 1));
  assert.equal(cpu(), 4);
  store.send(shard("stored", 1, 0));
  assert.equal(cpu(), 8);
  store.send(shard("removed", 0, 1));
  assert.equal(cpu(), 0);
  store.send(shard("stored", 0, 1));
  assert.equal(cpu(), 8);
  // No block has this kind of shard yet, so none is complete.
  store.send(shard("stored", 0, 2));
  assert.equal(cpu(), 4);
  const copy = new Engine(1);
  copy.index.unsubscribe(copy.id);
  const fresh = openIndex(256 * 1024 * 1024, 1337n);
  await copyInto(fresh, store.index);
  Object.assign(copy, { index: fresh, id: store.id });
  copy.send(shard("stored", 1, 2));
  assert.equal(copy.ask(tokens).CPU, 8);
  // A store that starts again may split its blocks in another way.
  copy.index.clear(copy.id);
  copy.send(shard("stored", 0, 0));
  assert.equal(copy.ask(tokens).CPU, 4);
  // There are more kinds than can be tracked, so no block is known to be complete.
  for (let layer = 0; layer < 1100; layer++) copy.send(shard("stored", 0, 0, layer));
  for (let layer = 0; layer < 1100; layer++) copy.send(shard("stored", 0, 0, layer));
  assert.equal(copy.ask(tokens).CPU, 0);
});

void test("namespaces without blocks are freed, and one that comes again is like new", async () => {
  const engine = new Engine();
  const store = (salt: string) => engine.send({ event_type: "stored", seq_hashes: [...plain], token_ids: [...tokens], additional_salt: salt, event_id: 7 });
  for (let i = 0; i < 5000; i++) {
    store(`customer-${i}`);
    engine.send({ event_type: "cleared", additional_salt: `customer-${i}` });
    if (i % 100 === 0) while (engine.index.reclaim(10_000) === 1);
  }
  assert.ok(metricsOf(engine.index).namespaces <= 2500, String(metricsOf(engine.index).namespaces));
  store("customer-1");
  assert.equal(engine.ask(plain, { salt: "customer-1" }).GPU, 16);
  const copy = openIndex(256 * 1024 * 1024, 1337n);
  await copyInto(copy, engine.index);
  assert.equal(copy.streams(), engine.index.streams());
  assert.equal(await copy.tally(), await engine.index.tally());
  assert.equal(JSON.parse(copy.answer({ ...scope, salt: "customer-1" }, plain).toString()).default.e.GPU, 16);
});

void test("cleared blocks disappear from answers at once, and their memory is freed in slices", () => {
  const engine = new Engine();
  const chain = (number: number) => Uint32Array.from({ length: 256 * 4 }, (_, i) => number * 2000 + i);
  for (let number = 0; number < 400; number++)
    engine.send(["BlockStored", Array.from({ length: 256 }, (_, i) => number * 1000 + i + 1), null, [...chain(number)], 4, null, "GPU"]);
  assert.equal(engine.ask(chain(3)).GPU, 1024);
  engine.send(["AllBlocksCleared"]);
  assert.equal(metricsOf(engine.index).blocks, 102_400);
  for (let number = 0; number < 400; number += 7) assert.equal(engine.ask(chain(number)).GPU, 0);
  // The cleared names mean nothing any more, so a child of one waits.
  engine.send(["BlockStored", [5], 4, [1, 2, 3, 4], 4, null, "GPU"]);
  assert.equal(counts[outcomeIndex.parked], 1);
  engine.send(["BlockStored", [11], null, [...chain(9).subarray(0, 4)], 4, null, "GPU"]);
  let slices = 0;
  while (engine.index.reclaim(1000) === 1) slices++;
  assert.ok(slices > 100);
  assert.equal(metricsOf(engine.index).blocks, 1);
  assert.equal(engine.ask(chain(9)).GPU, 4);
});

void test("events that wait for their parent still wait in an index that is loaded from a snapshot", async () => {
  const engine = new Engine();
  engine.send(["BlockStored", [3, 4], 2, [...tokens.subarray(8)], 4, null, "GPU"], ["BlockRemoved", [4], "GPU"]);
  const copy = new Engine();
  const index = openIndex(16 * 1024 * 1024, 1337n);
  await copyInto(index, engine.index);
  Object.assign(copy, { index, id: engine.id });
  assert.equal(index.parked(engine.id), 1);
  copy.send(["BlockStored", [1, 2], null, [...tokens.subarray(0, 8)], 4, null, "GPU"]);
  assert.equal(counts[outcomeIndex.unparked], 1);
  assert.equal(copy.ask(tokens).GPU, 12);
});

void test("a salt or an adapter that no event has named is answered with a row of zeros for each instance that it may come from", () => {
  const index = openIndex(64 * 1024 * 1024, 1337n);
  const register = (instance: string, more: { lora?: string; salt?: string; tenant?: string }) =>
    index.subscribe({ instance, tenant: "default", model: "m", lora: "", salt: "", key: instance, blockSize, rank: 0, store: 0, ...more });
  const rows = (more: Partial<NativeQuery>): string[] =>
    Object.keys(Object.values(JSON.parse(index.answer({ ...scope, ...more }, tokens).toString()) as object)[0] as object);
  register("a", {});
  register("b", { salt: "s" });
  const adapter = register("c", { lora: "x" });
  register("d", { lora: "x", salt: "s" });
  register("e", { tenant: "other" });
  for (let round = 0; round < 2; round++) {
    assert.deepEqual(rows({}), ["a"]);
    assert.deepEqual(rows({ salt: "unknown" }), ["a"]);
    assert.deepEqual(rows({ salt: "s" }), ["a", "b"]);
    assert.deepEqual(rows({ lora: "n:x" }), ["a", "c"]);
    assert.deepEqual(rows({ lora: "n:x", salt: "s" }), ["a", "b", "c", "d"]);
    assert.deepEqual(rows({ lora: "n:unknown", salt: "s" }), ["a", "b"]);
    assert.deepEqual(rows({ lora: "i:x" }), ["a"]);
    assert.deepEqual(rows({ tenant: "other", salt: "s" }), ["e"]);
    assert.deepEqual(rows({ model: "unknown" }), []);
    assert.deepEqual(rows({ blockSize: 8 }), []);
  }
  // These queries exceed the cache; a changed registration must not be answered with rows that were cached before.
  for (let n = 0; n < 500; n++) assert.deepEqual(rows({ model: `m${n}` }), []);
  index.unsubscribe(adapter);
  register("f", { salt: "unknown" });
  assert.deepEqual(rows({ lora: "n:x" }), ["a"]);
  assert.deepEqual(rows({ salt: "unknown" }), ["a", "f"]);
});
