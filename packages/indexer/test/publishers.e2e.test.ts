// Tests publishers that are not one plain engine: two under one identity, hybrid caches, digests as hashes, a store of several tenants; and
// the doctor's reports.
import assert from "node:assert/strict";
import { test } from "node:test";
import { openHasher } from "@svc/contract/index-client.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { startIndexer, type TestIndexer } from "./indexer.ts";
import { type EventStep, needsPublishers, startPublisher } from "./publisher.ts";

const blockSize = 4;
const prompt = Array.from({ length: 16 }, (_, i) => 900 + i);
const hashes = [...(await openHasher())(Uint32Array.from(prompt), blockSize)];
const base = { type: "vLLM", modelname: "m", block_size: blockSize, dp_rank: 0 };
const scope = { model: "m", block_size: blockSize, token_ids: prompt };

function stored(names: unknown[], from: number, parent: unknown, more: EventStep = {}): EventStep {
  const token_ids = prompt.slice(from * blockSize, (from + names.length) * blockSize);
  return { kind: "stored", block_hashes: names, parent_block_hash: parent, token_ids, block_size: blockSize, ...more };
}
async function rowOf(indexer: TestIndexer, instance: string, more: Record<string, unknown> = {}) {
  return (await indexer.query({ ...scope, ...more }))[instance];
}
async function doctorOf(indexer: TestIndexer, instance: string): Promise<string> {
  return (await indexer.services()).find(({ instance_id }) => instance_id === instance)?.doctor.join("\n") ?? "";
}

void test("two publishers under one registration are reported, and only the last one's blocks are answered", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  const [port = 0] = await freePorts(1);
  await indexer.register({ ...base, endpoint: `tcp://0.0.0.0:${port}`, instance_id: "e" });
  await using one = await startPublisher({ rank: 0, connect: `tcp://127.0.0.1:${port}` });
  await using two = await startPublisher({ rank: 0, connect: `tcp://127.0.0.1:${port}` });
  // Each publisher counts from 0, so one's batches look like the other's restart.
  const seen = async (restarts: number) =>
    indexer.until(
      `${restarts} restarts`,
      () => indexer.services(),
      ([service]) => (service?.batches["restarts"] ?? 0) >= restarts,
    );
  const say = async (publisher: typeof one, blocks: number): Promise<void> => {
    await publisher.send({ events: [{ kind: "cleared" }, stored([1, 2, 3, 4].slice(0, blocks), 0, null)] });
  };
  await indexer.until(
    "the first batch",
    async () => {
      await say(one, 1);
      return indexer.services();
    },
    ([service]) => service?.freshness.last_sequence !== null,
  );
  await indexer.until(
    "many restarts",
    async () => {
      await say(two, 2);
      await say(one, 3);
      return indexer.services();
    },
    ([service]) => (service?.batches["restarts"] ?? 0) >= 6,
  );
  await seen(6);
  const says = await doctorOf(indexer, "e");
  assert.match(says, /seems to have two publishers.*an endpoint and a registration of its own/);
  assert.doesNotMatch(says, /replay_endpoint|buffer_steps/);
  const before = (await indexer.services())[0]?.batches["received"] ?? 0;
  await indexer.until(
    "the last one's",
    async () => {
      await say(two, 4);
      return (await rowOf(indexer, "e"))?.GPU;
    },
    (tokens) => tokens === 16,
  );
  assert.ok(((await indexer.services())[0]?.batches["received"] ?? 0) > before);
});

void test("two engines with one backend_id and equal blocks are two rows, and one's removal leaves the other's", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using one = await startPublisher({ rank: 0 });
  await using two = await startPublisher({ rank: 0 });
  for (const [instance_id, publisher] of [
    ["a", one],
    ["b", two],
  ] as const) {
    await indexer.register({ ...base, endpoint: publisher.endpoint, replay_endpoint: publisher.replayEndpoint, instance_id });
    const event = { event_id: 0, event_type: "stored", seq_hashes: hashes, backend_id: "worker-0", parent_hash: null, base_block_idx: 0, token_ids: prompt };
    await publisher.send({ events: [{ raw: event }] });
    await indexer.taken(instance_id, 1);
  }
  await two.send({ events: [{ raw: { event_id: 1, event_type: "removed", seq_hashes: [hashes[1]], backend_id: "worker-0" } }] });
  await indexer.taken("b", 2);
  assert.equal((await rowOf(indexer, "a"))?.GPU, 16);
  assert.equal((await rowOf(indexer, "b"))?.GPU, 4);
});

void test("digests are hashes, remote blocks are not prefixes, and negative hashes are exact", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using publisher = await startPublisher({ wire: "vllm-0.30.0", rank: 0 });
  await indexer.register({ ...base, endpoint: publisher.endpoint, replay_endpoint: publisher.replayEndpoint, instance_id: "e" });
  const digest = (n: number, bytes: number) => ({ bin: n.toString(16).padStart(bytes * 2, "a") });
  await publisher.send({
    events: [
      stored([digest(1, 32), digest(2, 32)], 0, null),
      stored([-5], 2, digest(2, 32)),
      stored([digest(9, 16)], 3, -5, { locality: "REMOTE" }),
      { kind: "removed", block_hashes: [-5], locality: "REMOTE" },
    ],
  });
  const { events } = await indexer.taken("e", 1);
  assert.equal(events["remote"], 2);
  assert.equal((await rowOf(indexer, "e"))?.GPU, 12);
  await publisher.send({ events: [{ kind: "removed", block_hashes: [-5] }] });
  await indexer.taken("e", 2);
  assert.equal((await rowOf(indexer, "e"))?.GPU, 8);
});

void test("a store's events belong to their own tenant: its row and its shared blocks appear only under that one", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using engine = await startPublisher({ rank: 0 });
  await using store = await startPublisher();
  await indexer.register({ ...base, endpoint: engine.endpoint, replay_endpoint: engine.replayEndpoint, instance_id: "e", tenant_id: "acme" });
  await indexer.register({ ...base, endpoint: store.endpoint, replay_endpoint: store.replayEndpoint, instance_id: "pool", type: "svc" });
  await engine.send({ events: [stored([1, 2], 0, null)] });
  let eventId = 0;
  const key = (depth: number, medium: string, more: EventStep = {}): EventStep => ({
    raw: {
      event_id: eventId++,
      event_type: "stored",
      tenant_id: "acme",
      backend_id: "daemon",
      medium,
      seq_hashes: [hashes[depth]],
      base_block_idx: 0,
      ...more,
    },
  });
  await store.send({
    master: true,
    events: [key(2, "cpu"), key(3, "disk"), { raw: { event_type: "stored", seq_hashes: [], object_key: "not-a-hash", medium: "cpu" } }],
  });
  await indexer.taken("e", 1);
  const { events } = await indexer.taken("pool", 1);
  assert.equal(events["no_hash"], 1);
  const acme = await indexer.query({ ...scope, tenant_id: "acme" });
  assert.deepEqual(acme, {
    e: { longest_matched: 16, GPU: 8, CPU: 0, DISK: 0, DP: { "0": 16 } },
    pool: { longest_matched: 0, GPU: 0, CPU: 0, DISK: 0, DP: { "0": 0 } },
  });
  await store.send({ master: true, events: [key(0, "cpu"), key(1, "disk")] });
  await indexer.taken("pool", 2);
  assert.deepEqual((await indexer.query({ ...scope, tenant_id: "acme" }))["pool"], { longest_matched: 16, GPU: 0, CPU: 4, DISK: 0, DP: { "0": 16 } });
  // All blocks belong to the tenant acme: under the registration's own tenant, the store's row is empty and the engine has none.
  assert.deepEqual(await indexer.query(scope), { pool: { longest_matched: 0, GPU: 0, CPU: 0, DISK: 0, DP: { "0": 0 } } });
});

void test("the doctor reports quiet publishers, lost beginnings, unnumbered keys, and messages that it cannot read", needsPublishers(), async () => {
  await using indexer = await startIndexer(["--indexer.silence_seconds=1"]);
  await using quiet = await startPublisher({ rank: 0 });
  await using late = await startPublisher({ rank: 0 });
  await using keys = await startPublisher();
  await indexer.register({ ...base, endpoint: quiet.endpoint, instance_id: "quiet" });
  await indexer.register({ ...base, endpoint: late.endpoint, replay_endpoint: late.replayEndpoint, instance_id: "late" });
  await indexer.register({ ...base, endpoint: keys.endpoint, replay_endpoint: keys.replayEndpoint, instance_id: "keys", type: "Mooncake" });
  await late.send({ events: [stored([7], 1, 6)] }, { payload: "c1" }, { events: [{ raw: { type: "SomethingElse" } }] });
  await keys.send({ master: true, events: [{ raw: { event_type: "stored", seq_hashes: [], object_key: "tenant/a", medium: "cpu" } }] });
  await indexer.taken("late", 3, true);
  await indexer.taken("keys", 1);
  const says = await doctorOf(indexer, "late");
  assert.match(says, /every stored event waits for a parent that was never seen/);
  assert.match(says, /1 messages were malformed/);
  assert.match(says, /1 events could not be understood/);
  assert.match(await doctorOf(indexer, "keys"), /neither decimal nor 0x-hexadecimal/);
  await indexer.until(
    "quiet is reported",
    () => doctorOf(indexer, "quiet"),
    (text) => /no event has come for \d+ s: is KV event publishing switched on/.test(text),
  );
});

void test("two ranks that share a publisher are separated by their batches, and a clear of one leaves the other's blocks", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using publisher = await startPublisher({ rank: 0 });
  await indexer.register({ ...base, endpoint: publisher.endpoint, replay_endpoint: publisher.replayEndpoint, instance_id: "e" });
  await publisher.send({ rank: 0, events: [stored([1, 2], 0, null)] }, { rank: 1, events: [stored([1, 2, 3], 0, null)] });
  await indexer.taken("e", 2);
  assert.deepEqual((await rowOf(indexer, "e"))?.DP, { "0": 8, "1": 12 });
  await publisher.send({ rank: 1, events: [{ kind: "cleared" }] });
  await indexer.taken("e", 3);
  const row = await rowOf(indexer, "e", { freshness: true });
  assert.deepEqual(row?.DP, { "0": 8, "1": 0 });
  assert.deepEqual(Object.keys(row?.freshness ?? {}), ["0", "1"]);
  await publisher.send({ rank: 0, events: [{ kind: "removed", block_hashes: [2] }] });
  await indexer.taken("e", 4);
  assert.deepEqual((await rowOf(indexer, "e"))?.DP, { "0": 4, "1": 0 });
  assert.match(
    await doctorOf(indexer, "e"),
    /2 batches carry another data-parallel rank than the registered 0; their blocks count for the rank that they carry/,
  );
});

void test("names with a bar in them are separate registrations, and removing one leaves the other", async () => {
  await using indexer = await startIndexer();
  const record = { ...base, endpoint: "tcp://127.0.0.1:9" };
  await indexer.register({ ...record, instance_id: "a|b", tenant_id: "c" });
  await indexer.register({ ...record, instance_id: "a", tenant_id: "b|c" });
  const ended = await indexer.post("/unregister", { instance_id: "a|b", tenant_id: "c", dp_rank: 0 });
  assert.deepEqual(ended.body, { status: "unregistered successfully", removed_instances: ["a|b|c|0"] });
  const [left, ...others] = await indexer.services();
  assert.deepEqual([left?.instance_id, left?.tenant_id, others.length], ["a", "b|c", 0]);
});

void test("an event whose seq_hashes are nil is read by its block_hashes, whichever comes first", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using publisher = await startPublisher({ rank: 0 });
  await indexer.register({ ...base, endpoint: publisher.endpoint, replay_endpoint: publisher.replayEndpoint, instance_id: "e" });
  const tokens = (block: number) => prompt.slice(block * blockSize, (block + 1) * blockSize);
  await publisher.send({
    events: [
      { raw: { type: "BlockStored", seq_hashes: null, block_hashes: [1], parent_block_hash: null, token_ids: tokens(0), block_size: blockSize } },
      { raw: { type: "BlockStored", block_hashes: [2], seq_hashes: null, parent_block_hash: 1, token_ids: tokens(1), block_size: blockSize } },
    ],
  });
  await indexer.taken("e", 1);
  assert.equal((await rowOf(indexer, "e"))?.GPU, 8);
});
