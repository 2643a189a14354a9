// Tests the registration doctor: each fault is named in a sentence, and a healthy registration has none.
import assert from "node:assert/strict";
import { test } from "node:test";
import { startIndexer } from "./indexer.ts";
import { needsPublishers, startPublisher } from "./publisher.ts";

const base = { type: "vLLM", modelname: "m", block_size: 4, dp_rank: 0 };

void test("the doctor reports a silent endpoint, another seed, another block size, missing tokens and a wrong rank", needsPublishers(), async () => {
  await using indexer = await startIndexer(["--indexer.silence_seconds=1"]);
  await using well = await startPublisher({ rank: 0 });
  await using ill = await startPublisher({ rank: 3 });
  await indexer.register({ ...base, endpoint: "tcp://127.0.0.1:9", instance_id: "silent" });
  await indexer.register({ ...base, endpoint: well.endpoint, replay_endpoint: well.replayEndpoint, instance_id: "well" });
  await indexer.register({ ...base, endpoint: ill.endpoint, replay_endpoint: ill.replayEndpoint, instance_id: "ill" });
  await well.send({ events: [{ kind: "stored", block_hashes: [1], parent_block_hash: null, token_ids: [1, 2, 3, 4], block_size: 4 }] });
  await ill.send({
    events: [
      { raw: { event_type: "stored", seq_hashes: [12345], base_block_idx: 0, token_ids: [1, 2, 3, 4] } },
      { kind: "stored", block_hashes: [2], parent_block_hash: null, token_ids: Array(16).fill(1), block_size: 16 },
      { kind: "stored", block_hashes: [3], parent_block_hash: null, token_ids: [], block_size: 4 },
    ],
  });
  await indexer.taken("well", 1);
  await indexer.taken("ill", 1);
  const says = async (instance: string) => (await indexer.services()).find(({ instance_id }) => instance_id === instance)?.doctor.join("\n") ?? "";
  assert.equal(await says("well"), "");
  const ills = await says("ill");
  for (const part of [
    /seq_hashes are not XXH3-64 of their tokens under indexer.hash_seed/,
    /refused for another block size/,
    /neither token_ids nor standard hashes/,
    /another data-parallel rank than the registered 0/,
  ])
    assert.match(ills, part);
  await indexer.until(
    "silence is reported",
    () => says("silent"),
    (text) => /nobody speaks ZMQ at tcp:\/\/127.0.0.1:9/.test(text),
  );
});
