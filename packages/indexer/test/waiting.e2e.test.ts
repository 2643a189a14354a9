// Tests that batches that overtook others wait within bounds, and are taken in one after the other while queries are answered.
import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_WAITING, Order, PendingBudget } from "../src/index/order.ts";
import { seen, startIndexer } from "./indexer.ts";
import { type BatchStep, needsPublishers, startPublisher } from "./publisher.ts";

const base = { type: "vLLM", modelname: "m", block_size: 4, dp_rank: 0, instance_id: "e" };
const block = (n: number, more: object = {}): BatchStep => ({
  events: [{ kind: "stored", block_hashes: [n + 1], parent_block_hash: null, token_ids: [n, n, n, n], block_size: 4 }],
  ...more,
});
const longest = async (indexer: { query(body: Record<string, unknown>): Promise<Record<string, { longest_matched: number }>> }, n: number) =>
  (await indexer.query({ model: "m", block_size: 4, token_ids: [n, n, n, n] }))["e"]?.longest_matched;

void test("pending batches are bounded for each publisher and for all of them together, and their memory is freed", () => {
  const budget = new PendingBudget(4000);
  const orders = Array.from({ length: 6 }, () => new Order(budget));
  const payload = Buffer.alloc(100);
  for (const order of orders) {
    order.next = 0;
    for (let n = 1; order.decide(n, payload.length) === "wait"; n++) order.wait(n, payload);
  }
  assert.equal(budget.bytes, 4000);
  orders[0]?.goTo(6);
  assert.equal(budget.bytes, 3500);
  orders[1]?.restart();
  for (const order of orders) order.clear();
  assert.equal(budget.bytes, 0);
});

void test("one lost batch without a replay endpoint is one loss, even if more overtook it than can wait", needsPublishers(), async () => {
  await using indexer = await startIndexer(["--indexer.reorder_grace_ms=50"]);
  await using publisher = await startPublisher({ rank: 0 });
  await indexer.register({ ...base, endpoint: publisher.endpoint });
  await indexer.until(
    "the first batch",
    async () => {
      await publisher.send(block(1));
      return indexer.services();
    },
    ([one]) => one?.freshness.last_sequence !== null,
  );
  await publisher.send(block(2), block(3, { drop: true }), block(4));
  await indexer.until(
    "the last one",
    () => longest(indexer, 4),
    (tokens) => tokens === 4,
  );
  const [few] = await indexer.services();
  assert.equal(few?.batches["gaps_lost"], 1);
  assert.equal(await longest(indexer, 2), 0);
  const payloads = Array.from({ length: MAX_WAITING + 50 }, (_, n) => block(n));
  await publisher.send(block(5, { drop: true }), ...payloads, block(6));
  await indexer.until(
    "what came after the second",
    () => longest(indexer, 6),
    (tokens) => tokens === 4,
  );
  assert.equal((await indexer.services())[0]?.batches["gaps_lost"], 2);
});

void test(
  "twenty thousand replayed batches and thousands that wait for them are all taken in, in order, while queries are answered",
  needsPublishers(),
  async () => {
    await using indexer = await startIndexer();
    await using publisher = await startPublisher({ rank: 0, buffer: 60_000 });
    await publisher.send(...Array.from({ length: 20_000 }, (_, n) => block(n % 500, { drop: true })));
    await indexer.register({ ...base, endpoint: publisher.endpoint, replay_endpoint: publisher.replayEndpoint });
    await publisher.send(...Array.from({ length: 20_000 }, (_, n) => block(n % 500)));
    await indexer.taken("e", 40_000);
    const service = await seen(indexer, "the verification", ({ complete }) => complete);
    assert.equal(service.batches["gaps_lost"], 0);
    // A replay that was cut short for lack of capacity is requested again: batches that come twice are taken in once.
    assert.ok(Number(service.batches["received"]) >= 40_000);
    assert.equal(await longest(indexer, 499), 4);
  },
);
