// POST /score: expected seconds per candidate, from what each engine holds, and the state of those that must not be chosen.
import assert from "node:assert/strict";
import { test } from "node:test";
import { IndexClient } from "@svc/contract/index-client.ts";
import type { ScoreAnswer } from "@svc/contract/index-score.ts";
import { startIndexer } from "./indexer.ts";
import { needsPublishers, startPublisher } from "./publisher.ts";

const prompt = Array.from({ length: 65 }, (_, i) => 7 * i + 3);
const base = { type: "vLLM", modelname: "m", dp_rank: 0 };
const rates = { prefill_tokens_per_second: 100, load_tokens_per_second: 1000 };

/** The first blocks of the prompt, as an engine with this block size reports them. */
function stored(blocks: number, blockSize: number, more: object = {}) {
  const block_hashes = Array.from({ length: blocks }, (_, i) => 100 + i);
  return { kind: "stored", block_hashes, parent_block_hash: null, token_ids: prompt.slice(0, blocks * blockSize), block_size: blockSize, ...more };
}

void test("a score is the expected seconds of prefill, for engines of different block sizes in one request", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using one = await startPublisher({ rank: 0 });
  await using two = await startPublisher({ rank: 0 });
  await indexer.register({ ...base, endpoint: one.endpoint, replay_endpoint: one.replayEndpoint, instance_id: "a", block_size: 16 });
  await indexer.register({ ...base, endpoint: two.endpoint, replay_endpoint: two.replayEndpoint, instance_id: "b", block_size: 32 });
  await one.send({ events: [stored(3, 16)] });
  await two.send({ events: [stored(2, 32)] });
  await indexer.taken("a", 1);
  await indexer.taken("b", 1);
  const candidates = ["a", { instance_id: "b", waiting_tokens: 99 }, "nobody"];
  const { status, body } = await indexer.post("/score", { model: "m", token_ids: prompt, candidates, ...rates });
  assert.equal(status, 200);
  const { a, b, nobody } = (body as ScoreAnswer)["default"] ?? {};
  assert.deepEqual([a?.state, a?.matched_tokens, a?.block_size, a?.score], ["live", 48, 16, 0.17]);
  assert.deepEqual([b?.state, b?.matched_tokens, b?.block_size, b?.score], ["live", 64, 32, 1]);
  assert.deepEqual([nobody?.state, nobody?.matched_tokens, nobody?.score], ["unregistered", 0, 0.65]);
  assert.match(a?.because ?? "", /rank 0 has 48 of 65 tokens/);
  assert.match(b?.because ?? "", /99 tokens wait before it/);
  // An engine computes a prompt's last token itself, so a prompt of whole blocks never matches completely.
  const whole = (await new IndexClient(indexer.url).score(Uint32Array.from(prompt.slice(0, 48)), { model: "m", candidates: ["a"] }))["default"]?.["a"];
  assert.deepEqual([whole?.matched_tokens, whole?.prompt_tokens], [32, 48]);
});

void test("tokens outside the device cost their loading, and uncertain ones count at their share", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using one = await startPublisher({ rank: 0 });
  await indexer.register({ ...base, endpoint: one.endpoint, instance_id: "a", block_size: 16 });
  await one.send({ events: [stored(2, 16)] }, { events: [{ ...stored(4, 16), block_hashes: [100, 101, 102, 103], medium: "CPU" }] });
  await indexer.taken("a", 2);
  const score = async () => ((await indexer.post("/score", { model: "m", token_ids: prompt, ...rates })).body as ScoreAnswer)["default"]?.["a"];
  const before = await score();
  assert.deepEqual([before?.matched_tokens, before?.loaded_tokens, before?.score], [64, 32, 0.01 + 0.032]);
  await one.send({ skip: 3, events: [] });
  const after = await indexer.until("the blocks are uncertain", score, (row) => (row?.uncertain_tokens ?? 0) > 0);
  assert.deepEqual([after?.matched_tokens, after?.uncertain_tokens, after?.score], [0, 64, 0.33]);
});

void test("an engine whose publisher is gone has no score, and counts as dead after the silence", needsPublishers(), async () => {
  await using indexer = await startIndexer(["--indexer.silence_seconds=1"]);
  await using one = await startPublisher({ rank: 0 });
  await indexer.register({ ...base, endpoint: one.endpoint, replay_endpoint: one.replayEndpoint, instance_id: "a", block_size: 16 });
  await one.send({ events: [stored(3, 16)] });
  await indexer.taken("a", 1);
  await one.kill();
  const score = async () => ((await indexer.post("/score", { model: "m", token_ids: prompt })).body as ScoreAnswer)["default"]?.["a"];
  const row = await indexer.until("the engine is dead", score, (seen) => seen?.state === "dead");
  assert.equal(row?.score, null);
  assert.match(row?.because ?? "", /has not answered/);
});

void test("a score request that is wrong is refused with the field that is", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  const refusals = [
    [{ token_ids: [1] }, "missing", "model"],
    [{ model: "m" }, "missing", "token_ids"],
    [{ model: "m", seq_hashes: [1] }, "missing", "block_size"],
    [{ model: "m", token_ids: [1, -1] }, "out_of_range", "token_ids"],
    [{ model: "m", token_ids: [1], uncertain_share: 2 }, "out_of_range", "uncertain_share"],
    [{ model: "m", token_ids: [1], colour: "red" }, "unknown_field", "colour"],
  ] as const;
  for (const [body, reason, field] of refusals) {
    const answer = await indexer.post("/score", body);
    assert.deepEqual([answer.status, (answer.body as { reason: string }).reason, (answer.body as { field: string }).field], [400, reason, field]);
  }
});
