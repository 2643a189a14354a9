// Runs many publishers at once over a lossy wire, and compares every instance's set with its publisher's, block for block.
import assert from "node:assert/strict";
import { openIndex } from "../src/index/native.ts";
import { startIndexer } from "./indexer.ts";
import { type Plan, startPublisher } from "./publisher.ts";

const CHAIN_BATCHES = 25;
type Page = { blocks: { seq_hash: bigint | number; holders: string[] }[]; next_cursor: number | null };

/** Returns the blocks that a plan's publisher has in the end, as standard hashes. */
function expected(plan: Plan): Set<bigint> {
  const hasher = openIndex(16 * 1024 * 1024, 1337n);
  const held = new Set<bigint>();
  const perBatch: bigint[][] = [];
  for (let chain = 0; chain * CHAIN_BATCHES < plan.batches; chain++) {
    const batches = Math.min(CHAIN_BATCHES, plan.batches - chain * CHAIN_BATCHES);
    const start = plan.seed * 50_000_000 + chain * 100_000;
    const tokens = Uint32Array.from({ length: batches * plan.blocks * plan.block_size }, (_, i) => start + i);
    const hashes = hasher.sequences(tokens, plan.block_size);
    for (let batch = 0; batch < batches; batch++) perBatch.push([...hashes.subarray(batch * plan.blocks, (batch + 1) * plan.blocks)]);
  }
  perBatch.forEach((hashes, batch) => {
    for (const hash of hashes) held.add(hash);
    if (batch % 10 === 9) for (const hash of perBatch[batch - 3] ?? []) held.delete(hash);
  });
  return held;
}

export async function compareAtScale(publishers: number, batches: number, blocks: number): Promise<void> {
  await using indexer = await startIndexer(["--indexer.replay_timeout_ms=20000"]);
  await using all = new AsyncDisposableStack();
  const started = await Promise.all(Array.from({ length: publishers }, () => startPublisher({ rank: 0 })));
  for (const publisher of started) all.use(publisher);
  const plans = started.map((_, i): Plan => ({ seed: i + 1, batches, blocks, block_size: 4 }));
  for (const [i, publisher] of started.entries())
    await indexer.register({
      endpoint: publisher.endpoint,
      replay_endpoint: publisher.replayEndpoint,
      type: "vLLM",
      modelname: "m",
      instance_id: `e${i}`,
      block_size: 4,
      dp_rank: 0,
    });
  await indexer.until(
    "connected",
    () => indexer.services(),
    (services) => services.every(({ freshness }) => freshness.connected),
  );
  await Promise.all(started.map((publisher, i) => publisher.generate(plans[i] as Plan)));
  const services = await indexer.until(
    "everything taken in",
    () => indexer.services(),
    (seen) => seen.every(({ freshness }) => freshness.last_sequence === batches - 1 && !freshness.gap),
  );
  const sum = (name: string) => services.reduce((total, { batches }) => total + (batches[name] ?? 0), 0);
  assert.ok(sum("gaps_healed") > 0, "the wire lost nothing");
  assert.ok(sum("duplicate") > 0, "the wire repeated nothing");
  assert.equal(sum("gaps_lost") + sum("restarts"), 0);

  const found = started.map(() => new Set<bigint>());
  for (let cursor: number | null = 0; cursor !== null; ) {
    const page = (await indexer.get(`/global_view?cursor=${cursor}&limit=10000`)) as Page;
    for (const { seq_hash, holders } of page.blocks) for (const holder of holders) found[Number(/^e(\d+)\|0\|GPU$/.exec(holder)?.[1])]?.add(BigInt(seq_hash));
    cursor = page.next_cursor;
  }
  for (const [i, plan] of plans.entries()) {
    const wanted = expected(plan);
    assert.equal(found[i]?.size, wanted.size, `e${i}`);
    for (const hash of wanted) assert.ok(found[i]?.has(hash), `e${i} lacks ${hash}`);
  }
}
