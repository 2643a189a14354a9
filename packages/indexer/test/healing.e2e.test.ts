// Tests how the indexer handles gaps, restarts, duplicates and silence of real publisher processes.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { freePorts } from "@svc/harness/ports.ts";
import { seen, startIndexer, type TestIndexer } from "./indexer.ts";
import { type BatchStep, type EventStep, needsPublishers, type Publisher, startPublisher } from "./publisher.ts";

const blockSize = 4;
const prompt = Array.from({ length: 40 }, (_, i) => 500 + i);
const scope = { model: "m", block_size: blockSize };

/** Returns a batch with one block of the prompt, named by its depth. */
function block(depth: number, more: EventStep = {}): BatchStep {
  const token_ids = prompt.slice(depth * blockSize, (depth + 1) * blockSize);
  const events = [{ kind: "stored", block_hashes: [depth + 1], parent_block_hash: depth === 0 ? null : depth, token_ids, block_size: blockSize, ...more }];
  return { events };
}

async function register(indexer: TestIndexer, publisher: Publisher, replay: boolean, more: Record<string, unknown> = {}): Promise<void> {
  await indexer.register({
    endpoint: publisher.endpoint,
    ...(replay ? { replay_endpoint: publisher.replayEndpoint } : {}),
    type: "vLLM",
    modelname: "m",
    instance_id: "e",
    block_size: blockSize,
    dp_rank: 0,
    ...more,
  });
  await indexer.until(
    "connected",
    () => indexer.services(),
    (services) => services.every(({ freshness }) => freshness.connected),
  );
}

const longest = async (indexer: TestIndexer) => (await indexer.query({ ...scope, token_ids: prompt }))["e"]?.longest_matched;

void test("a gap is healed by a replay, and duplicates change nothing", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using publisher = await startPublisher({ rank: 0 });
  await register(indexer, publisher, true);
  await publisher.send(block(0), { ...block(1), twice: true }, { ...block(2), drop: true }, { ...block(3), drop: true }, block(4));
  await indexer.taken("e", 5);
  // A number that came before may belong to another process: a replay shows that it does not.
  const service = await seen(indexer, "the verification", ({ complete }) => complete);
  assert.equal(await longest(indexer), 20);
  // A replay brought the dropped batches; it depends on timing which run of the healer found the gap.
  assert.ok((service.batches["replayed"] ?? 0) >= 2);
  assert.equal(service.batches["gaps_lost"], 0);
  assert.equal(service.batches["restarts"], 0);
});

void test("a gap that cannot be healed drops the stream's blocks and marks it until the publisher clears everything", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using publisher = await startPublisher({ rank: 0 });
  await register(indexer, publisher, false);
  await publisher.send(block(0), block(1));
  await indexer.taken("e", 2);
  await publisher.send({ ...block(2), drop: true }, block(3));
  const [service] = await indexer.until(
    "marked",
    () => indexer.services(),
    ([one]) => one?.freshness.gap === true && one.freshness.last_sequence === 3,
  );
  assert.equal(await longest(indexer), 0);
  assert.match(service?.doctor.join(" ") ?? "", /replay_endpoint/);
  await publisher.send({ events: [{ kind: "cleared" }] }, block(0));
  await indexer.taken("e", 6);
  assert.equal(await longest(indexer), 4);
});

void test("a replay whose buffer begins too late loses the stream, and the batches that it still has are taken in", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using publisher = await startPublisher({ rank: 0, buffer: 2 });
  await register(indexer, publisher, true);
  await publisher.send(block(0));
  await indexer.taken("e", 1);
  await publisher.send(...[1, 2, 3].map((depth) => ({ ...block(depth), drop: true })), block(4), { events: [] });
  const [service] = await indexer.until(
    "marked",
    () => indexer.services(),
    ([one]) => one?.freshness.gap === true && one.freshness.last_sequence === 5,
  );
  assert.equal(service?.batches["gaps_lost"], 1);
  assert.equal(await longest(indexer), 0);
});

void test("a publisher that restarts loses its former blocks at once, even if the indexer missed its first batches", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  const former = await startPublisher({ rank: 0 });
  await register(indexer, former, true);
  await former.send(block(0), block(1), block(2), block(3));
  await indexer.taken("e", 4);
  assert.equal(await longest(indexer), 16);
  await former.kill();
  // The indexer requests the new process's replay as soon as it is there, before it has sent anything.
  await using next = await startPublisher({ rank: 0, port: former.port, replay_port: former.replayPort });
  await indexer.until(
    "cleared",
    () => longest(indexer),
    (tokens) => tokens === 0,
  );
  await indexer.until(
    "connected",
    () => indexer.services(),
    ([one]) => one?.freshness.connected === true,
  );
  await next.send(block(0), block(1));
  await indexer.until(
    "two blocks",
    () => longest(indexer),
    (tokens) => tokens === 8,
  );
  const service = await seen(indexer, "the verification", ({ complete }) => complete);
  assert.equal(service.batches["restarts"], 1);
});

void test("without a replay endpoint no stream is complete between a new connection and the next batch", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  const former = await startPublisher({ rank: 0 });
  await register(indexer, former, false);
  await former.send(block(0));
  await indexer.taken("e", 1);
  assert.equal((await seen(indexer, "complete", ({ complete }) => complete)).freshness.connected, true);
  await former.kill();
  await using _next = await startPublisher({ rank: 0, port: former.port });
  await seen(indexer, "another connection", ({ connected, complete }) => connected && !complete);
});

void test("a registration whose endpoint has no specific host is bound, and publishers connect to it", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  const [port = 0] = await freePorts(1);
  await using publisher = await startPublisher({ rank: 0, connect: `tcp://127.0.0.1:${port}`, topic: "kv" });
  await indexer.register({ endpoint: `tcp://*:${port}`, type: "sglang", modelname: "m", instance_id: "e", block_size: blockSize, dp_rank: 0 });
  await indexer.until(
    "connected",
    () => indexer.services(),
    ([one]) => one?.freshness.connected === true,
  );
  await publisher.send(block(0));
  await indexer.until(
    "a block",
    () => longest(indexer),
    (tokens) => tokens === 4,
  );
});

void test("events that contradict the registration are refused, counted and named; malformed frames are skipped", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using publisher = await startPublisher({ rank: 0 });
  await register(indexer, publisher, false, { lora_name: "a" });
  await publisher.send({ payload: "93ff" }, block(0), block(1, { block_size: 8 }), block(1, { lora_name: "b" }), {
    events: [{ raw: { event_type: "stored", model_name: "other", seq_hashes: [1] } }],
  });
  const service = await indexer.taken("e", 5, true);
  assert.equal(service.events["block_size_differs"], 1);
  assert.equal(service.events["lora_differs"], 1);
  assert.equal(service.events["model_differs"], 1);
  assert.equal(service.batches["malformed"], 1);
  assert.equal(service.events["blocks_stored"], 1);
  assert.match(service.doctor.join("\n"), /model "other", the registration says "m"/);
  const answer = await indexer.query({ ...scope, lora_name: "a", token_ids: prompt });
  assert.equal(answer["e"]?.longest_matched, 4);
  assert.deepEqual(await indexer.query({ ...scope, token_ids: prompt }), {});
});

void test("an indexer killed by SIGKILL answers as before after its restart, and heals what it missed", needsPublishers(), async () => {
  await using indexer = await startIndexer(["--indexer.snapshot_interval_seconds=1"]);
  await using publisher = await startPublisher({ rank: 0 });
  await register(indexer, publisher, true);
  await publisher.send(block(0), block(1), block(2));
  await indexer.taken("e", 3);
  // The snapshot's note says in plain text how far each publisher was taken in.
  const snapshot = `${indexer.home}/indexer/index.snapshot`;
  await indexer.until(
    "a snapshot of all three batches",
    async () => (existsSync(snapshot) ? readFileSync(snapshot, "latin1") : ""),
    (text) => text.includes('"next":3'),
  );
  await indexer.kill("SIGKILL");
  await publisher.send(block(3), { events: [{ kind: "removed", block_hashes: [3] }] });
  await indexer.start();
  const service = await indexer.taken("e", 5);
  assert.equal(await longest(indexer), 8);
  assert.equal(service.batches["replayed"], 2);
  assert.equal(service.batches["restarts"], 0);
});

void test("a second indexer that bootstraps from a sibling has equal digests for every stream", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using publisher = await startPublisher({ rank: 0 });
  await register(indexer, publisher, true);
  await publisher.send(block(0), block(1), block(2, { medium: "CPU" }));
  const first = await indexer.taken("e", 3);
  await using second = await startIndexer([`--indexer.bootstrap_from=${indexer.url}`]);
  const [copy] = await second.services();
  assert.deepEqual(copy?.streams, first.streams);
  await second.until(
    "connected",
    () => second.services(),
    ([one]) => one?.freshness.connected === true,
  );
  await publisher.send(block(3));
  assert.deepEqual((await indexer.taken("e", 4)).streams, (await second.taken("e", 4)).streams);
});

void test("unreadable removals cause no wrong match: no block that they may have named is answered", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  const trouble = {
    "a stored event": [{ events: [{ raw: ["BlockStored", 5] }] }, { matched: 16, gap: false }],
    "a removal": [{ events: [{ raw: ["BlockRemoved", "x", "GPU"] }] }, { matched: 0, gap: true }],
    "a removal of one hash that is none": [{ events: [{ raw: ["BlockRemoved", [1, null], "GPU"] }] }, { matched: 0, gap: true }],
    "a batch": [{ payload: "93ff" }, { matched: 0, gap: true }],
  } as const;
  for (const [what, [step, { matched, gap }]] of Object.entries(trouble)) {
    await using publisher = await startPublisher({ rank: 0 });
    await register(indexer, publisher, false);
    await publisher.send(block(0), block(1), block(2), block(3));
    await indexer.taken("e", 4);
    await publisher.send(step as BatchStep);
    const { freshness } = await indexer.taken("e", 5, gap);
    assert.deepEqual([freshness.gap, freshness.complete], [gap, false], what);
    assert.equal((await indexer.query({ ...scope, token_ids: prompt }))["e"]?.longest_matched ?? 0, matched, what);
    await indexer.post("/unregister", { instance_id: "e", dp_rank: 0 });
  }
});
