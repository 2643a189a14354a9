// Tests that the wire format of every engine release, published by a real process through real ZMQ, gives exact answers.
import assert from "node:assert/strict";
import { test } from "node:test";
import { startIndexer } from "./indexer.ts";
import { type EventStep, needsPublishers, startPublisher } from "./publisher.ts";

const blockSize = 4;
const prompt = Array.from({ length: 20 }, (_, i) => 1000 + i);
const scope = { model: "m", block_size: blockSize };

function stored(hashes: unknown[], parent: unknown, tokens: number[], more: EventStep = {}): EventStep {
  return { kind: "stored", block_hashes: hashes, parent_block_hash: parent, token_ids: tokens, block_size: blockSize, ...more };
}

const wires = [
  "vllm-0.9",
  "sglang-0.4.8",
  "vllm-0.10.2",
  "sglang-0.5.9",
  "vllm-0.17.1",
  "vllm-0.20.2",
  "vllm-0.25.1",
  "vllm-0.30.0",
  "vllm-0.33.0",
  "sglang-0.5.23",
];

void test("events of every engine release give the same exact answers, live and by replay", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  for (const [number, wire] of wires.entries()) {
    await using publisher = await startPublisher({ wire, rank: 0 });
    const instance = `engine-${wire}`;
    // The first batch is sent before the indexer listens: only a replay can bring it.
    const sign = wire.startsWith("sglang") ? -1 : 1;
    const hash = (block: number) => sign * (number * 1000 + block + 1);
    await publisher.send({ events: [stored([hash(0), hash(1)], null, prompt.slice(0, 8))] });
    await indexer.register({
      endpoint: publisher.endpoint,
      replay_endpoint: publisher.replayEndpoint,
      type: wire.startsWith("sglang") ? "SGLang" : "vLLM",
      modelname: "m",
      instance_id: instance,
      block_size: blockSize,
      dp_rank: 0,
    });
    await indexer.taken(instance, 1);
    await publisher.send({ events: [stored([hash(2), hash(3)], hash(1), prompt.slice(8, 16))] }, { events: [{ kind: "removed", block_hashes: [hash(3)] }] });
    await indexer.taken(instance, 3);
    const answer = await indexer.query({ ...scope, token_ids: prompt, instance_id: instance });
    assert.deepEqual(answer, { [instance]: { longest_matched: 12, GPU: 12, CPU: 0, DISK: 0, DP: { "0": 12 } } }, wire);
    await publisher.send({ events: [{ kind: "cleared" }] });
    await indexer.taken(instance, 4);
    assert.equal((await indexer.query({ ...scope, token_ids: prompt, instance_id: instance }))[instance]?.longest_matched, 0, wire);
  }
});
