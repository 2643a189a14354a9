// Registers the maximum number of publishers: each is taken in and answered, and one more is refused with the limit.
import assert from "node:assert/strict";
import { test } from "node:test";
import { limitsOf } from "../src/stream/zmq.ts";
import { startIndexer } from "./indexer.ts";
import { needsPublishers, startPublisher } from "./publisher.ts";

const PUBLISHERS = limitsOf().publishers;
const blockSize = 4;
const tokens = Array.from({ length: 8 }, (_, i) => i + 1);
const record = { type: "vLLM", modelname: "m", block_size: blockSize, dp_rank: 0 };

void test(
  `${PUBLISHERS} publishers, the maximum under this limit of open files, are taken in and answered, and one more is refused`,
  needsPublishers(),
  async () => {
    await using indexer = await startIndexer();
    await using publisher = await startPublisher({ rank: 0 });
    const names = Array.from({ length: PUBLISHERS }, (_, n) => `e${n}`);
    for (const instance_id of names) await indexer.register({ ...record, endpoint: publisher.endpoint, instance_id });
    const more = await indexer.post("/register", { ...record, endpoint: publisher.endpoint, instance_id: "more" });
    assert.equal(more.status, 400);
    assert.match((more.body as { error: string }).error, new RegExp(`^${PUBLISHERS} publishers are registered, the maximum`));
    await indexer.until(
      "all of them connected",
      () => indexer.services(),
      (services) => services.every(({ freshness }) => freshness.connected),
    );
    await publisher.send({ events: [{ kind: "stored", block_hashes: [1, 2], parent_block_hash: null, token_ids: tokens, block_size: blockSize }] });
    const rows = await indexer.until(
      "the batch in each of them",
      () => indexer.query({ model: "m", block_size: blockSize, token_ids: tokens }),
      (seen) => Object.values(seen).every(({ longest_matched }) => longest_matched === tokens.length),
    );
    assert.equal(Object.keys(rows).length, PUBLISHERS);
    const unknown = await indexer.query({ model: "m", block_size: blockSize, token_ids: tokens, cache_salt: "that no event has named" });
    assert.equal(Object.keys(unknown).length, PUBLISHERS);
    assert.ok(Object.values(unknown).every(({ longest_matched }) => longest_matched === 0));
  },
);
