// Tiers whose events have hashes alone, as vLLM's OffloadingConnector and SimpleCPUOffloadConnector send them: the device's events say which blocks
// they are.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Match, QueryAnswer } from "@svc/contract/indexer.ts";
import { Packr } from "msgpackr";
import { openIndex, outcomes } from "../src/index/native.ts";

const packr = new Packr({ useRecords: false });
const SIZE = 4;
const TOKENS = Array.from({ length: 12 }, (_, at) => at + 1);
/** An engine's own hashes, which are not those of the standard. */
const NAMES = [0x1111222233334444n, 0x5555666677778888n, 0x9999aaaabbbbccccn];

function openEngine() {
  const index = openIndex(64 * 1024 * 1024, 1337n);
  const scope = { tenant: "default", model: "m", lora: "", salt: "", blockSize: SIZE };
  const id = index.subscribe({ ...scope, instance: "e", key: "e", rank: 0, store: 0, countsCopies: true });
  let sequence = 0;
  return {
    complaint: () => index.complaint(id),
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

const computed = (engine: Engine) =>
  engine.send({ type: "BlockStored", block_hashes: NAMES, parent_block_hash: null, token_ids: TOKENS, block_size: SIZE, medium: "GPU" });
const offloaded = (engine: Engine, names: readonly bigint[], size = 0) =>
  engine.send({ type: "BlockStored", block_hashes: names, parent_block_hash: null, token_ids: [], block_size: size, medium: "CPU" });

for (const size of [0, SIZE]) {
  void test(`blocks that an engine offloads with block size ${size} and without tokens are found on the CPU, and stay there when the device evicts them`, () => {
    const engine = openEngine();
    computed(engine);
    assert.deepEqual(offloaded(engine, NAMES.slice(0, 2), size), { events: 1, blocks_stored: 2 });
    assert.deepEqual([engine.row().GPU, engine.row().CPU], [12, 8]);
    engine.send({ type: "BlockRemoved", block_hashes: NAMES, medium: "GPU" });
    const row = engine.row();
    assert.deepEqual([row.GPU, row.CPU, row.longest_matched], [0, 8, 8]);
    engine.send({ type: "BlockRemoved", block_hashes: NAMES.slice(0, 1), medium: "CPU" });
    assert.equal(engine.row().longest_matched, 0);
  });
}

void test("an offloaded block that is reported before the device's own event is found once that event comes", () => {
  const engine = openEngine();
  assert.deepEqual(offloaded(engine, NAMES), { events: 1, parked: 1 });
  assert.equal(engine.row().CPU, 0);
  computed(engine);
  assert.deepEqual([engine.row().GPU, engine.row().CPU], [12, 12]);
});

void test("blocks of the device without tokens are still refused, and the complaint says why", () => {
  const engine = openEngine();
  const counts = engine.send({ type: "BlockStored", block_hashes: NAMES, parent_block_hash: null, token_ids: [], block_size: SIZE, medium: "GPU" });
  assert.equal(counts["blocks_stored"], undefined);
  assert.notEqual(engine.complaint(), "");
});
