// Compares the index after lost batches with a plain dictionary: no wrong hit is certain, and streams with consecutive numbers keep their
// blocks.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Packr } from "msgpackr";
import { type NativeIndex, type NativeQuery, openIndex, outcomes } from "../src/index/native.ts";
import { copyInto } from "./copies.ts";

const blockSize = 4;
const DEPTH = 5;
const packr = new Packr({ useRecords: false });
const counts = new Uint32Array(outcomes.length);
const tokens = Uint32Array.from({ length: DEPTH * blockSize }, (_, i) => 7 * i + 1);
const hashes = openIndex(16 * 1024 * 1024, 1337n).sequences(tokens, blockSize);
const query: NativeQuery = { tenant: "default", model: "m", lora: "", salt: "", blockSize, instance: "" };
const media = ["gpu", "cpu", "disk"] as const;
type Medium = (typeof media)[number];

/** A publisher with a stream for each medium, each with its own numbers. */
class Numbered {
  index: NativeIndex = openIndex(16 * 1024 * 1024, 1337n);
  readonly id = this.index.subscribe({ instance: "e", tenant: "default", model: "m", lora: "", salt: "", key: "e", blockSize, rank: 0, store: 0 });
  readonly held = new Map<Medium, Set<number>>(media.map((medium) => [medium, new Set()]));
  /** Streams whose later events show that they lost nothing in the last loss. */
  readonly known = new Set<Medium>(media);
  readonly #next = new Map<Medium, number>(media.map((medium) => [medium, 0]));
  readonly #lost = new Set<Medium>();
  #sequence = 0;

  send(medium: Medium, type: "stored" | "removed" | "cleared", depth: number, arrives: boolean): void {
    const event_id = this.#next.get(medium) as number;
    this.#next.set(medium, event_id + 1);
    const held = this.held.get(medium) as Set<number>;
    if (type === "stored") held.add(depth);
    else if (type === "removed") held.delete(depth);
    else held.clear();
    const at = tokens.subarray(depth * blockSize, (depth + 1) * blockSize);
    const fields = type === "stored" ? { base_block_idx: depth, parent_hash: depth === 0 ? null : hashes[depth - 1], token_ids: [...at] } : {};
    const event = { event_id, event_type: type, medium, ...(type === "cleared" ? {} : { seq_hashes: [hashes[depth]] }), ...fields };
    if (!arrives) {
      this.#sequence++;
      this.#lost.add(medium);
      this.index.lose(this.id);
      this.known.clear();
      return;
    }
    assert.equal(this.index.apply(this.id, this.#sequence++, packr.pack([1.5, [event], 0]), counts, new Float64Array(1)), 1);
    if (!this.#lost.has(medium)) this.known.add(medium);
  }

  /** Returns the answered blocks of a medium. */
  answered(medium: Medium): number {
    const rows = JSON.parse(this.index.answer(query, tokens).toString()) as { default: { e?: Record<string, number> } };
    return (rows.default.e?.[medium.toUpperCase()] ?? 0) / blockSize;
  }

  check(): void {
    for (const medium of media) {
      const held = this.held.get(medium) as Set<number>;
      let truth = 0;
      while (held.has(truth)) truth++;
      const answered = this.answered(medium);
      assert.ok(answered <= truth, `${medium}: ${answered} blocks answered, ${truth} held`);
      if (this.known.has(medium)) assert.equal(answered, truth, `${medium}: nothing of it was lost`);
    }
  }
}

const step = fc.record({
  medium: fc.constantFrom(...media),
  type: fc.constantFrom("stored" as const, "stored" as const, "stored" as const, "removed" as const, "cleared" as const),
  depth: fc.integer({ min: 0, max: DEPTH - 1 }),
  arrives: fc.integer({ min: 0, max: 9 }).map((chance) => chance > 0),
});

void test("after lost batches only present blocks are answered as certain, and a stream with consecutive event numbers keeps its blocks", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const publisher = new Numbered();
      for (const { medium, type, depth, arrives } of steps) {
        publisher.send(medium, type, depth, arrives);
        publisher.check();
      }
    }),
    { numRuns: 1500 },
  );
});

void test("a block that is stored on the GPU after a loss proves all blocks before it that were there before", () => {
  const index = openIndex(16 * 1024 * 1024, 1337n);
  const id = index.subscribe({ instance: "e", tenant: "default", model: "m", lora: "", salt: "", key: "e", blockSize, rank: 0, store: 0 });
  const send = (sequence: number, event: unknown) => index.apply(id, sequence, packr.pack([1.5, [event], 0]), counts, new Float64Array(1));
  const row = () => JSON.parse(index.answer(query, tokens).toString()).default.e;
  const stored = (names: number[], parent: number | null, from: number, medium: string) => [
    "BlockStored",
    names,
    parent,
    [...tokens.subarray(from * blockSize, (from + names.length) * blockSize)],
    blockSize,
    null,
    medium,
  ];
  send(0, stored([1, 2, 3], null, 0, "GPU"));
  send(1, stored([1, 2, 3, 4], null, 0, "CPU"));
  index.lose(id);
  send(3, stored([4], 3, 3, "CPU"));
  // A tier that blocks are copied to need not have the blocks before it.
  assert.deepEqual(row(), { longest_matched: 0, GPU: 0, CPU: 0, DISK: 0, DP: { "0": 0 }, uncertain: { longest_matched: 16, DP: { "0": 16 } } });
  send(4, stored([4], 3, 3, "GPU"));
  assert.deepEqual(row(), { longest_matched: 16, GPU: 16, CPU: 0, DISK: 0, DP: { "0": 16 } });
  send(5, ["BlockRemoved", [2], "GPU"]);
  assert.deepEqual(row(), { longest_matched: 4, GPU: 4, CPU: 0, DISK: 0, DP: { "0": 4 }, uncertain: { longest_matched: 12, DP: { "0": 12 } } });
});

void test("unverified streams stay unverified in an index that is loaded from a snapshot, until their next event", async () => {
  const publisher = new Numbered();
  for (let depth = 0; depth < DEPTH; depth++) publisher.send("gpu", "stored", depth, true);
  publisher.send("cpu", "stored", 0, true);
  publisher.send("cpu", "stored", 1, false);
  assert.equal(publisher.answered("gpu"), 0);
  const copy = openIndex(16 * 1024 * 1024, 1337n);
  await copyInto(copy, publisher.index);
  publisher.index = copy;
  assert.equal(publisher.answered("gpu"), 0);
  publisher.send("gpu", "stored", 0, true);
  publisher.send("cpu", "stored", 2, true);
  assert.equal(publisher.answered("gpu"), DEPTH);
  assert.equal(publisher.answered("cpu"), 0);
  publisher.check();
});

void test("after a lost batch, the blocks of a publisher without event numbers are uncertain until they are stored again", () => {
  const index = openIndex(16 * 1024 * 1024, 1337n);
  const id = index.subscribe({ instance: "e", tenant: "default", model: "m", lora: "", salt: "", key: "e", blockSize, rank: 0, store: 0 });
  const send = (sequence: number, event: unknown) => index.apply(id, sequence, packr.pack([1.5, [event], 0]), counts, new Float64Array(1));
  send(0, ["BlockStored", [1, 2], null, [...tokens.subarray(0, 8)], blockSize, null, "GPU"]);
  send(1, {
    event_id: 0,
    event_type: "stored",
    medium: "cpu",
    seq_hashes: [hashes[0]],
    base_block_idx: 0,
    parent_hash: null,
    token_ids: [...tokens.subarray(0, 4)],
  });
  index.lose(id);
  send(3, {
    event_id: 1,
    event_type: "stored",
    medium: "cpu",
    seq_hashes: [hashes[4]],
    base_block_idx: 4,
    parent_hash: hashes[3],
    token_ids: [...tokens.subarray(16)],
  });
  const row = () => JSON.parse(index.answer(query, tokens).toString()).default.e;
  const none = { longest_matched: 0, GPU: 0, CPU: 0, DISK: 0, DP: { "0": 0 } };
  assert.deepEqual(row(), { ...none, uncertain: { longest_matched: 8, DP: { "0": 8 } } });
  // A removal also removes an uncertain block, and a block that is stored again is certain.
  send(4, ["BlockRemoved", [2], "GPU"]);
  assert.deepEqual(row(), { ...none, uncertain: { longest_matched: 4, DP: { "0": 4 } } });
  send(5, ["BlockStored", [1], null, [...tokens.subarray(0, 4)], blockSize, null, "GPU"]);
  assert.deepEqual(row(), { ...none, longest_matched: 4, GPU: 4, DP: { "0": 4 } });
  index.lose(id);
  assert.deepEqual(row(), { ...none, uncertain: { longest_matched: 4, DP: { "0": 4 } } });
  index.forgetUncertain(id);
  assert.deepEqual(row(), none);
  assert.equal(index.lacks(id), 0);
});

void test("a publisher that clears everything after a lost batch is answered for all blocks that it stores from then on", () => {
  const publisher = new Numbered();
  publisher.send("gpu", "stored", 0, true);
  publisher.send("gpu", "stored", 1, false);
  assert.equal(publisher.answered("gpu"), 0);
  publisher.index.apply(publisher.id, 7, packr.pack([1.5, [["AllBlocksCleared"]], 0]), counts, new Float64Array(1));
  publisher.send("gpu", "cleared", 0, true);
  publisher.send("gpu", "stored", 0, true);
  assert.equal(publisher.answered("gpu"), 1);
});

void test("a removal that cannot be read, between others of its batch, is not healed by the numbers that follow", () => {
  const index = openIndex(16 * 1024 * 1024, 1337n);
  const id = index.subscribe({ instance: "e", tenant: "default", model: "m", lora: "", salt: "", key: "e", blockSize, rank: 0, store: 0 });
  const stored = (event_id: number, depth: number) => ({
    event_id,
    event_type: "stored",
    medium: "gpu",
    seq_hashes: [hashes[depth]],
    base_block_idx: depth,
    parent_hash: depth === 0 ? null : hashes[depth - 1],
    token_ids: [...tokens.subarray(depth * blockSize, (depth + 1) * blockSize)],
  });
  const apply = (sequence: number, ...events: object[]) => {
    assert.equal(index.apply(id, sequence, packr.pack([1.5, events, 0]), counts, new Float64Array(1)), 1);
    return counts[outcomes.indexOf("lost_removal")];
  };
  assert.equal(apply(0, stored(0, 0), stored(1, 1)), 0);
  const unread = { event_id: 2, event_type: "removed", medium: "gpu", seq_hashes: "x" };
  assert.equal(apply(1, unread, { event_id: 3, event_type: "removed", medium: "gpu", seq_hashes: [hashes[1]] }), 1);
  index.lose(id);
  assert.equal(apply(2, stored(4, 2)), 0);
  const rows = JSON.parse(index.answer(query, tokens).toString()) as { default: { e?: { longest_matched: number } } };
  assert.equal(rows.default.e?.longest_matched ?? 0, 0);
});
