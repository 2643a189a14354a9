// Tests the parts that decide without any socket: order, frames, exact JSON, the standard hashes, endpoints.
import assert from "node:assert/strict";
import { test } from "node:test";
import { openHasher } from "@svc/contract/index-client.ts";
import { sequenceFrame } from "@svc/contract/kv-event.ts";
import fc from "fast-check";
import { Packr } from "msgpackr";
import { parseExact, writeExact } from "../src/http/exact-json.ts";
import { openIndex, outcomes, UNUSUAL } from "../src/index/native.ts";
import { Order, PendingBudget } from "../src/index/order.ts";
import { LISTS } from "../src/query/query-input.ts";
import { readEndpoints } from "../src/registrations/register-input.ts";
import { readLive, readReplay } from "../src/stream/frames.ts";

void test("batches are applied once and in order, in whatever order they come", () => {
  const arrivals = fc
    .shuffledSubarray([...Array(12).keys()], { minLength: 12 })
    .chain((order) => fc.array(fc.nat(11), { maxLength: 6 }).map((again) => [...order, ...again]));
  fc.assert(
    fc.property(arrivals, (sequences) => {
      const order = new Order(new PendingBudget(1 << 20));
      order.next = 0;
      const applied: number[] = [];
      const apply = (payload: Buffer) => {
        applied.push(payload.readUInt8());
        order.applied(payload.readUInt8());
      };
      for (const sequence of sequences) {
        const payload = Buffer.from([sequence]);
        const verdict = order.decide(sequence, payload.length);
        if (verdict === "apply") apply(payload);
        if (verdict === "wait") order.wait(sequence, payload);
        for (let due = order.takeDue(); due !== undefined; due = order.takeDue()) apply(due);
      }
      assert.deepEqual(applied, [...Array(12).keys()]);
      assert.equal(order.gap, false);
    }),
  );
});

void test("both shapes of a replay's answers are read, and their end", () => {
  const payload = Buffer.from([0x90]);
  const empty = Buffer.alloc(0);
  const minusOne = Buffer.alloc(8, 0xff);
  assert.deepEqual(readReplay([empty, sequenceFrame(7n), payload]), { sequence: 7, payload });
  assert.deepEqual(readReplay([empty, empty, sequenceFrame(7n), payload]), { sequence: 7, payload });
  assert.deepEqual(readReplay([empty, Buffer.from("topic"), sequenceFrame(7n), payload]), { sequence: 7, payload });
  assert.equal(readReplay([empty, minusOne, empty]), "end");
  assert.equal(readReplay([empty, empty, minusOne, empty]), "end");
  assert.equal(readReplay([empty, payload]), undefined);
  assert.equal(readLive([empty, Buffer.alloc(7), payload]), undefined);
  assert.equal(readLive([empty, payload]), undefined);
});

void test("whole numbers of 64 bits pass through JSON unchanged", () => {
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), (value) => {
      assert.equal(BigInt(parseExact(value.toString()) as number | bigint), value);
      assert.equal(writeExact({ value }, false), `{"value":${value}}`);
      assert.equal(writeExact({ value }, true), `{"value":"${value}"}`);
    }),
  );
});

// These were made by another binding of XXH3 (Python's xxhash) from the text of the rule.
const vectors: [number[], number, bigint[]][] = [
  [Array.from({ length: 32 }, (_, i) => i + 1), 16, [16863443419780771464n, 12466389667045779788n]],
  [[0, 0xffffffff, 7, 150000, 3, 9], 2, [82595646164830710n, 16403129089367219060n, 6975601526586310605n]],
  [Array.from({ length: 1000 }, (_, i) => i), 256, [13509048708924160886n, 12131640031995933197n, 607587807521871063n]],
];

void test("server and client hash prompts by the standard, with seed 1337", async () => {
  const index = openIndex(16 * 1024 * 1024, 1337n);
  const hash = await openHasher();
  for (const [tokens, blockSize, hashes] of vectors) {
    assert.deepEqual([...index.sequences(Uint32Array.from(tokens), blockSize)], hashes);
    assert.deepEqual([...hash(Uint32Array.from(tokens), blockSize)], hashes);
  }
});

void test("endpoints without a specific host are bound, others are dialled", () => {
  for (const host of ["*", "0.0.0.0", "::", "[::]"]) assert.equal(readEndpoints(`tcp://${host}:5557`, "endpoint")[0]?.binds, true, host);
  for (const host of ["127.0.0.1", "engine-0.svc", "[::1]"]) assert.equal(readEndpoints(`tcp://${host}:5557`, "endpoint")[0]?.binds, false, host);
  for (const wrong of ["", "tcp://", "tcp://host", "tcp://host:0", "tcp://host:70000", "http://host:1", "inproc://x"])
    assert.throws(() => readEndpoints(wrong, "endpoint"), wrong);
});

void test("the JSON scan agrees with JSON.parse, or leaves the body to it", () => {
  const index = openIndex(16 * 1024 * 1024, 1337n);
  index.subscribe({ instance: "e", tenant: "default", model: "m", lora: "", salt: "", key: "e", blockSize: 1, rank: 0, store: 0 });
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 0xffffffff })), fc.constantFrom(",", ", ", " ,\n"), fc.nat(4), (tokens, comma, damage) => {
      let body = `{"model":"m","block_size":1,"token_ids":[${tokens.join(comma)}]}`;
      if (damage === 0) body = body.replace(/\d/, "$&.5");
      if (damage === 1) body = body.replace(/\[(\d)/, "[0$1");
      if (damage === 2) body = body.slice(0, -1);
      const scanned = index.scan(Buffer.from(body), false, LISTS.tokens);
      if (damage > 2) assert.notEqual(scanned, UNUSUAL);
      if (damage === 2) assert.equal(scanned, UNUSUAL);
    }),
  );
});

void test("hashes in JSON are read to the last digit up to 2^64 - 1, bare or quoted, and no larger number is accepted", () => {
  const index = openIndex(64 * 1024 * 1024, 1337n);
  const id = index.subscribe({ instance: "e", tenant: "default", model: "m", lora: "", salt: "", key: "e", blockSize: 1, rank: 0, store: 0 });
  const packr = new Packr({ useRecords: false });
  const edges = [2n ** 64n - 1n, 10n ** 19n, 10n ** 16n, 10n ** 16n - 1n, 100_000_000n, 99_999_999n, 0n];
  let sequence = 0;
  fc.assert(
    fc.property(fc.uniqueArray(fc.bigInt({ min: 1n, max: 2n ** 64n - 1n }), { maxLength: 30 }), fc.constantFrom("", '"'), (random, quote) => {
      const hashes = [...new Set([...random, ...edges])];
      const batch = packr.pack([1.5, [{ event_type: "cleared" }, { event_type: "stored", seq_hashes: hashes, base_block_idx: 0 }], 0]);
      index.apply(id, sequence++, batch, new Uint32Array(outcomes.length), new Float64Array(1));
      const body = `{"model":"m","block_size":1,"seq_hashes":[${hashes.map((hash) => `${quote}${hash}${quote}`).join(", ")}]}`;
      assert.notEqual(index.scan(Buffer.from(body), false, LISTS.hashes), UNUSUAL);
      const answer = JSON.parse(String(index.answerScanned(false, null))) as { default: { e: { GPU: number } } };
      assert.equal(answer.default.e.GPU, hashes.length);
    }),
  );
  for (const wrong of [
    "18446744073709551616",
    "99999999999999999999",
    "100000000000000000000",
    "0".repeat(24),
    `${2n ** 64n}0000000`,
    "12345678.5",
    "1e19",
    "-1",
    "01",
  ])
    assert.equal(index.scan(Buffer.from(`{"seq_hashes":[${wrong}],"model":"m","block_size":1}`), false, LISTS.hashes), UNUSUAL, wrong);
});
