// Tests engines with several KV cache groups, several copies of a block, or blocks that a lost message may have affected, as users see
// them.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Match } from "@svc/contract/indexer.ts";
import { startIndexer, type TestIndexer } from "./indexer.ts";
import { type EventStep, needsPublishers, type Publisher, startPublisher } from "./publisher.ts";

const blockSize = 4;
const prompt = Array.from({ length: 33 }, (_, i) => 900 + i);
const base = { type: "vLLM", modelname: "m", block_size: blockSize, dp_rank: 0 };
const scope = { model: "m", block_size: blockSize, token_ids: prompt };

function stored(names: number[], from: number, more: EventStep = {}): EventStep {
  const token_ids = prompt.slice(from * blockSize, (from + names.length) * blockSize);
  return { kind: "stored", block_hashes: names, parent_block_hash: from === 0 ? null : from, token_ids, block_size: blockSize, ...more };
}
const removed = (names: number[], more: EventStep = {}): EventStep => ({ kind: "removed", block_hashes: names, medium: "GPU", ...more });
const full = { group_idx: 1, kv_cache_spec_kind: "full_attention" };
const sliding = { group_idx: 0, kv_cache_spec_kind: "sliding_window", kv_cache_spec_sliding_window: 9 };

async function rowOf(indexer: TestIndexer, instance = "e"): Promise<Match | undefined> {
  return (await indexer.query(scope))[instance];
}
async function doctorOf(indexer: TestIndexer, instance = "e"): Promise<string> {
  return (await indexer.services()).find(({ instance_id }) => instance_id === instance)?.doctor.join("\n") ?? "";
}
async function started(publisher: Publisher, more: Record<string, string> = {}): Promise<TestIndexer> {
  const indexer = await startIndexer();
  await indexer.register({ ...base, endpoint: publisher.endpoint, replay_endpoint: publisher.replayEndpoint, instance_id: "e", ...more });
  return indexer;
}

void test(
  "gpt-oss is matched although its full attention is in the second group, and each group's removals count for that group",
  needsPublishers(),
  async () => {
    await using publisher = await startPublisher({ wire: "vllm-0.30.0", rank: 0 });
    await using indexer = await started(publisher);
    await publisher.send({ events: [stored([1, 2, 3, 4, 5, 6], 0, sliding), stored([1, 2, 3, 4, 5, 6], 0, full)] });
    await indexer.taken("e", 1);
    assert.deepEqual(await rowOf(indexer), { longest_matched: 24, GPU: 24, CPU: 0, DISK: 0, DP: { "0": 24 } });
    // A window of nine tokens needs two blocks before the point, and none before those.
    await publisher.send({ events: [removed([1, 2, 3], { group_idx: 0 })] });
    await indexer.taken("e", 2);
    assert.equal((await rowOf(indexer))?.longest_matched, 24);
    await publisher.send({ events: [removed([6], { group_idx: 0 })] });
    await indexer.taken("e", 3);
    assert.equal((await rowOf(indexer))?.longest_matched, 20);
    await publisher.send({ events: [removed([4], { group_idx: 0 })] });
    await indexer.taken("e", 4);
    assert.equal((await rowOf(indexer))?.longest_matched, 0);
    assert.equal(await doctorOf(indexer), "");
    const { body } = await indexer.post("/explain", scope);
    assert.match(
      JSON.stringify(body),
      /behind block 0 no point of the prompt has what each group of this engine's KV cache needs: 0 \(sliding_window\), 1 \(full_attention\)/,
    );
  },
);

void test("the doctor names an engine with a group that is not understood, and the group", needsPublishers(), async () => {
  await using publisher = await startPublisher({ wire: "vllm-0.30.0", rank: 0 });
  await using indexer = await started(publisher);
  await publisher.send({ events: [stored([1, 2], 0, { group_idx: 0, kv_cache_spec_kind: "holographic" }), stored([1, 2, 3], 0, full)] });
  await indexer.taken("e", 1);
  assert.equal((await rowOf(indexer))?.longest_matched, 8);
  assert.match(await doctorOf(indexer), /group 0 of the engine's KV cache \(holographic\) is not understood, because its kind is not known/);
  await publisher.send({ events: [stored([1], 0, { group_idx: 2, kv_cache_spec_kind: "chunked_local_attention" })] });
  await indexer.taken("e", 2);
  assert.match(await doctorOf(indexer), /group 2 .*chunked_local_attention\) is not understood, because its events do not say how large its window is/);
  await publisher.send({
    events: [{ ...stored([7, 8], 0, { group_idx: 3, kv_cache_spec_kind: "mla_attention" }), block_size: 2, token_ids: prompt.slice(0, 4) }],
  });
  await indexer.taken("e", 3);
  assert.match(await doctorOf(indexer), /group 3 .*\(mla_attention\) has blocks of 2 tokens, and the registration says 4, so it is not indexed/);
  assert.equal((await rowOf(indexer))?.longest_matched, 0);
});

void test("a block that vLLM has twice stays until both copies are removed, and SGLang's disappears with its only removal", needsPublishers(), async () => {
  for (const [type, left] of [
    ["vLLM", 8],
    ["SGLang", 4],
  ] as const) {
    await using publisher = await startPublisher({ rank: 0 });
    await using indexer = await started(publisher, { type });
    await publisher.send({ events: [stored([1, 2], 0), stored([2], 1)] }, { events: [removed([2])] });
    await indexer.taken("e", 2);
    assert.equal((await rowOf(indexer))?.longest_matched, left, type);
    await publisher.send({ events: [removed([2])] });
    await indexer.taken("e", 3);
    assert.equal((await rowOf(indexer))?.longest_matched, 4, type);
  }
});

void test("two owners of one medium have separate copies, and overlapping chunks of one owner are two copies", needsPublishers(), async () => {
  await using publisher = await startPublisher({ wire: "vllm-0.30.0", rank: 0 });
  await using indexer = await started(publisher);
  const on = (ownership: string) => ({ medium: "STORAGE", ownership });
  await publisher.send({ events: [stored([1, 2], 0, on("a")), stored([2, 3], 1, on("a")), stored([1], 0, on("b"))] });
  await publisher.send({ events: [removed([1, 2], on("a"))] });
  await indexer.taken("e", 2);
  assert.equal((await rowOf(indexer))?.DISK, 12);
  await publisher.send({ events: [removed([1], on("b"))] });
  await indexer.taken("e", 3);
  assert.equal((await rowOf(indexer))?.DISK, 0);
});

void test("a block that is hashed with the tokens after it matches only a prompt that continues with them", needsPublishers(), async () => {
  await using publisher = await startPublisher({ rank: 0 });
  await using indexer = await started(publisher);
  const lookahead = [0, 1].map((block) => prompt.slice((block + 1) * blockSize, (block + 1) * blockSize + 2));
  await publisher.send({
    events: [
      {
        raw: {
          type: "BlockStored",
          block_hashes: [1, 2],
          parent_block_hash: null,
          token_ids: prompt.slice(0, 8),
          block_size: blockSize,
          lora_id: null,
          medium: "GPU",
          lora_name: null,
          lookahead_token_ids: lookahead,
        },
      },
    ],
  });
  await indexer.taken("e", 1);
  const matched = async (tokens: number[]) => (await indexer.query({ ...scope, token_ids: tokens }))["e"]?.longest_matched;
  assert.equal(await matched(prompt.slice(0, 10)), 8);
  assert.equal(await matched([...prompt.slice(0, 8), 1, 2]), 4);
  // The tokens after the last block are not known yet.
  assert.equal(await matched(prompt.slice(0, 8)), 4);
});

void test(
  "one lost message without a replay makes the known blocks uncertain, and the next stored block makes its prefix certain",
  needsPublishers(),
  async () => {
    await using publisher = await startPublisher({ rank: 0 });
    await using indexer = await startIndexer();
    await indexer.register({ ...base, endpoint: publisher.endpoint, instance_id: "e" });
    await indexer.until(
      "the first batch",
      async () => {
        await publisher.send({ events: [{ kind: "cleared" }, stored([1, 2, 3], 0)] });
        return indexer.services();
      },
      ([one]) => one?.freshness.last_sequence !== null,
    );
    await publisher.send({ events: [stored([11], 0)], drop: true }, { events: [] });
    await indexer.until(
      "the loss",
      () => indexer.services(),
      ([one]) => one?.freshness.uncertain === true,
    );
    const lost = (await indexer.query({ ...scope, freshness: true }))["e"];
    assert.deepEqual([lost?.longest_matched, lost?.uncertain], [0, { longest_matched: 12, DP: { "0": 12 } }]);
    assert.deepEqual([lost?.freshness?.["0"]?.gap, lost?.freshness?.["0"]?.uncertain], [true, true]);
    assert.match(await doctorOf(indexer), /uncertain until they are stored again/);
    await publisher.send({ events: [stored([4], 3)] });
    await indexer.until(
      "what is stored behind it proves it",
      () => rowOf(indexer),
      (row) => row?.longest_matched === 16,
    );
    assert.equal((await rowOf(indexer))?.uncertain, undefined);
  },
);

void test("unconfirmed blocks are dropped after uncertain_seconds, even by an indexer that started meanwhile", needsPublishers(), async () => {
  await using publisher = await startPublisher({ rank: 0, buffer: 1 });
  await using indexer = await startIndexer(["--indexer.uncertain_seconds=3600"]);
  await indexer.register({ ...base, endpoint: publisher.endpoint, replay_endpoint: publisher.replayEndpoint, instance_id: "e" });
  await publisher.send({ events: [stored([1, 2], 0)] });
  await indexer.taken("e", 1);
  await publisher.send({ events: [], drop: true }, { events: [] }, { payload: "c1" });
  await indexer.taken("e", 4, true);
  assert.equal((await rowOf(indexer))?.uncertain?.longest_matched, 8);
  await indexer.kill("SIGTERM");
  await indexer.start();
  assert.equal((await rowOf(indexer))?.uncertain?.longest_matched, 8);
  await indexer.kill("SIGTERM");
  await indexer.start(["--indexer.uncertain_seconds=1"]);
  await indexer.until(
    "it is dropped",
    () => indexer.services(),
    ([one]) => one?.freshness.uncertain === false,
  );
  assert.equal((await rowOf(indexer))?.uncertain, undefined);
});
