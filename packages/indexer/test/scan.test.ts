// Tests that a query has one answer: by the one-pass scan or the careful reader, as JSON or msgpack, alone or in a batch, with or without
// freshness.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Packr, Unpackr } from "msgpackr";
import { Refusal } from "../src/http/refusal.ts";
import { BATCH_END, type NativeIndex, openIndex, outcomes, UNUSUAL, WANTS_FRESHNESS } from "../src/index/native.ts";
import { LISTS, type Lists, readQuery } from "../src/query/query-input.ts";

const blockSize = 2;
const packr = new Packr({ useRecords: false });
const unpackr = new Unpackr({ useRecords: false, mapsAsObjects: true });
const tokens = Array.from({ length: 12 }, (_, i) => i + 1);
const FIELDS = 7;

function filled(): NativeIndex {
  const index = openIndex(64 * 1024 * 1024, 1337n);
  const instances = ["a", 'b"\\', "ü"];
  for (const [n, instance] of instances.entries()) {
    const id = index.subscribe({ instance, tenant: "default", model: "m", lora: "", salt: "", key: `${n}`, blockSize, rank: n, store: 0 });
    const event = (medium: string, blocks: number, more: object = {}) => ({
      event_type: "stored",
      medium,
      seq_hashes: [...index.sequences(Uint32Array.from(tokens), blockSize).subarray(0, blocks)],
      token_ids: tokens.slice(0, blocks * blockSize),
      ...more,
    });
    const batch = packr.pack([1.5, [event("gpu", n + 1), event("external", 2, { additional_salt: "s" }), event("cpu", n, { lora_name: "l" })], n]);
    assert.equal(index.apply(id, 0, batch, new Uint32Array(outcomes.length), new Float64Array(1)), 1);
  }
  return index;
}
const index = filled();
const hashes = [...index.sequences(Uint32Array.from(tokens), blockSize)];
const freshness = Float64Array.from({ length: 3 * FIELDS }, (_, i) => (i % FIELDS === 1 ? Number.NaN : i % FIELDS >= 3 ? i % 2 : 2 ** 33 + i));

const text = fc.constantFrom("m", "default", "other", "", "s", "l", "a", 'b"\\', "ü", "nobody", "x".repeat(2000), null);
const query = fc.record(
  {
    model: fc.constantFrom("m", "m", "m", "m", "", "ü", null),
    block_size: fc.constantFrom(blockSize, blockSize, blockSize, 0, 1.5, -1, 2 ** 32),
    token_ids: fc.oneof(
      { weight: 6, arbitrary: fc.nat(tokens.length).map((n) => tokens.slice(0, n)) },
      fc.constantFrom<unknown[]>([1, 2.0], [1, -1], [1, "2"], [2 ** 32], [null], ["1"]),
    ),
    seq_hashes: fc.oneof(
      { weight: 6, arbitrary: fc.nat(hashes.length).map((n): unknown[] => hashes.slice(0, n)) },
      fc.constantFrom<unknown[]>(hashes.map(String), [2 ** 40], [-1], [1.5], [null]),
    ),
    tenant_id: text,
    instance_id: text,
    lora_name: text,
    cache_salt: text,
    freshness: fc.constantFrom(true, false, null, 1),
    note: fc.constantFrom(1, { a: [1] }),
  },
  { requiredKeys: [] },
);
/** Generates mostly valid queries. */
const sound = fc.tuple(query, fc.boolean(), fc.integer({ min: 0, max: 9 })).map(([odd, byHash, chance]) => {
  const list = byHash ? { seq_hashes: hashes.slice(0, 5) } : { token_ids: tokens };
  const plain = { model: "m", block_size: blockSize, ...list, freshness: chance > 5 };
  return chance < 3
    ? odd
    : chance < 6
      ? { ...plain, ...odd }
      : { ...plain, instance_id: odd.instance_id ?? null, cache_salt: odd.cache_salt ?? null, lora_name: odd.lora_name ?? null };
});

const asJson = (value: unknown): Buffer =>
  Buffer.from(JSON.stringify(value, (_, each: unknown) => (typeof each === "bigint" ? `hash ${each}` : each)).replace(/"hash (\d+)"/g, "$1"));
const bodyOf = (value: unknown, msgpack: boolean): Buffer => (msgpack ? packr.pack(value) : asJson(value));

function carefully(body: Buffer, msgpack: boolean, lists: Lists): unknown {
  try {
    const read = readQuery(index.splitQuery(body, msgpack), msgpack, lists);
    return JSON.parse(index.answer(read.query, read.list, false, read.freshness ? freshness : null).toString());
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return "refused";
  }
}

const answered = (scanned: number, packed: boolean): unknown => {
  const answer = index.answerScanned(packed, scanned === WANTS_FRESHNESS ? freshness : null);
  return packed ? unpackr.unpack(answer) : JSON.parse(answer.toString());
};

void test("a query has the same answer by the one-pass scan and the careful reader, as JSON and as msgpack", () => {
  let plain = 0;
  fc.assert(
    fc.property(sound, fc.boolean(), fc.boolean(), fc.constantFrom<Lists>("tokens", "hashes", "either"), (value, msgpack, packed, lists) => {
      const body = bodyOf(value, msgpack);
      const expected = carefully(body, msgpack, lists);
      const scanned = index.scan(body, msgpack, LISTS[lists]);
      if (scanned === UNUSUAL) return;
      plain++;
      assert.deepEqual(answered(scanned, packed), expected);
    }),
    { numRuns: 4000 },
  );
  assert.ok(plain > 200, `${plain} of them were plain`);
});

void test("the queries of a batch are read one by one like single ones, and a batch that is not plain is left to the careful reader", () => {
  let whole = 0;
  fc.assert(
    fc.property(fc.array(sound, { maxLength: 4 }), fc.boolean(), fc.boolean(), fc.nat(40), (values, msgpack, packed, damage) => {
      let body = bodyOf({ queries: values }, msgpack);
      if (damage < 8) body = body.subarray(0, body.length - 1 - damage);
      if (damage === 8) body = Buffer.concat([body, Buffer.from("]")]);
      if (damage === 9) body = bodyOf({ queries: values, more: 1 }, msgpack);
      const position = new Uint32Array(3);
      if (index.scanBatch(body, msgpack, position) === 0) return;
      const results: unknown[] = [];
      for (;;) {
        const scanned = index.scanNext(body, msgpack, position);
        if (scanned === UNUSUAL) return;
        if (scanned === BATCH_END) break;
        results.push(answered(scanned, packed));
      }
      assert.ok(damage > 9, "a damaged batch was read to its end");
      whole++;
      assert.deepEqual(
        results,
        values.map((value) => carefully(bodyOf(value, msgpack), msgpack, "either")),
      );
    }),
    { numRuns: 3000 },
  );
  assert.ok(whole > 200, `${whole} of them were plain`);
});
