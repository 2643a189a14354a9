// Tests the messages that a user meets first, in an error, in the doctor or in the freshness: each states the fault and the fix.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { openHasher } from "@svc/contract/index-client.ts";
import type { Match } from "@svc/contract/indexer.ts";
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
async function doctorOf(indexer: TestIndexer, instance: string): Promise<string> {
  return (await indexer.services()).find(({ instance_id }) => instance_id === instance)?.doctor.join("\n") ?? "";
}

void test("blocks that the memory budget evicted make the row incomplete, and the doctor names the setting", needsPublishers(), async () => {
  await using indexer = await startIndexer(["--indexer.memory_budget_mb=8"]);
  await using publisher = await startPublisher({ rank: 0 });
  await using other = await startPublisher({ rank: 0 });
  await indexer.register({ ...base, block_size: 16, endpoint: publisher.endpoint, replay_endpoint: publisher.replayEndpoint, instance_id: "large" });
  await indexer.register({ ...base, endpoint: other.endpoint, replay_endpoint: other.replayEndpoint, instance_id: "never-evicted", modelname: "n" });
  await publisher.generate({ seed: 1, batches: 10, blocks: 64, block_size: 16 });
  await indexer.until(
    "complete before",
    () => indexer.services(),
    ([large]) => large?.freshness.complete === true,
  );
  assert.equal(await doctorOf(indexer, "large"), "");
  await publisher.generate({ seed: 2, batches: 9000, blocks: 64, block_size: 16 });
  const [large] = await indexer.until(
    "evicted",
    () => indexer.services(),
    ([one]) => /memory budget was full/.test(one?.doctor.join() ?? ""),
  );
  assert.equal(large?.freshness.complete, false);
  const rows = await indexer.query({ ...scope, block_size: 16, freshness: true });
  assert.equal((rows["large"] as Match).freshness?.["0"]?.complete, false);
  assert.match(await indexer.doctor(), /\d+ blocks were evicted since the start, because indexer.memory_budget_mb \(8\) is full/);
  assert.doesNotMatch(await doctorOf(indexer, "never-evicted"), /memory budget/);
});

void test("a head above 32 KiB is refused with 431 even if it comes in one piece, and one below it is read", async () => {
  await using indexer = await startIndexer();
  const status = async (bytes: number) => (await fetch(`${indexer.url}/health`, { headers: { "x-pad": "x".repeat(bytes) } })).status;
  assert.equal(await status(31 * 1024), 200);
  assert.equal(await status(40 * 1024), 431);
});

void test("a compressed body is refused with 415 and the reason", async () => {
  await using indexer = await startIndexer();
  const response = await fetch(`${indexer.url}/query`, {
    method: "POST",
    body: gzipSync(JSON.stringify(scope)),
    headers: { "content-encoding": "gzip", "content-type": "application/json" },
  });
  assert.equal(response.status, 415);
  assert.deepEqual(await response.json(), {
    error: 'Content-Encoding: expected none, got "gzip"; send the body uncompressed',
    reason: "unsupported",
  });
});

void test("the doctor says at once that a host name does not resolve", async () => {
  await using indexer = await startIndexer();
  await indexer.register({ ...base, endpoint: "tcp://no-such-host.invalid:5557", instance_id: "e" });
  const says = await indexer.until(
    "the name is said",
    () => doctorOf(indexer, "e"),
    (text) => text !== "",
  );
  assert.match(says, /^the host name in tcp:\/\/no-such-host.invalid:5557 does not resolve \(.*(ENOTFOUND|EAI_AGAIN).*\): check its spelling/);
});

void test("an endpoint with a user in it is refused, since ZMQ has no users", async () => {
  await using indexer = await startIndexer();
  const { status, body } = await indexer.post("/register", { ...base, endpoint: "tcp://user@127.0.0.1:5557", instance_id: "e" });
  assert.equal(status, 400);
  assert.match(
    (body as { error: string }).error,
    /^endpoint: expected tcp:\/\/HOST:PORT with a host name or an address alone, got "tcp:\/\/user@127.0.0.1:5557"/,
  );
});

void test("two engines that are registered with one endpoint are both reported, and two stores are not", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using publisher = await startPublisher({ rank: 0 });
  for (const instance_id of ["one", "two"]) await indexer.register({ ...base, endpoint: publisher.endpoint, instance_id });
  assert.match(await doctorOf(indexer, "one"), new RegExp(`${publisher.endpoint} is registered for two\\|default\\|0 as well`));
  assert.match(await doctorOf(indexer, "two"), /is registered for one\|default\|0 as well/);
  await using store = await startPublisher({ rank: 0 });
  for (const instance_id of ["pool-m", "pool-n"]) await indexer.register({ ...base, type: "Mooncake", endpoint: store.endpoint, instance_id });
  assert.equal(await doctorOf(indexer, "pool-m"), "");
});

void test("after an unreadable message the doctor does not advise a longer replay buffer", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using publisher = await startPublisher({ rank: 0 });
  await indexer.register({ ...base, endpoint: publisher.endpoint, replay_endpoint: publisher.replayEndpoint, instance_id: "e" });
  await publisher.send({ events: [stored([1, 2], 0, null)] }, { payload: "c1" });
  await indexer.taken("e", 2, true);
  const says = await doctorOf(indexer, "e");
  assert.match(says, /1 messages were malformed/);
  assert.doesNotMatch(says, /buffer_steps|replay_endpoint/);
});

void test("lora_id 0 means the base model, in queries and in events", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using publisher = await startPublisher({ rank: 0 });
  await indexer.register({ ...base, endpoint: publisher.endpoint, replay_endpoint: publisher.replayEndpoint, instance_id: "e" });
  await publisher.send({ events: [stored([1, 2], 0, null, { lora_id: 0 }), stored([3], 2, 2)] });
  await indexer.taken("e", 1);
  for (const more of [{}, { lora_id: 0 }, { lora_id: "0" }]) assert.equal((await indexer.query({ ...scope, ...more }))["e"]?.longest_matched, 12);
  assert.equal((await indexer.query({ ...scope, lora_id: 1 }))["e"]?.longest_matched, 0);
});

void test("a query with extra_keys is refused instead of answered without them", async () => {
  await using indexer = await startIndexer();
  const { status, body } = await indexer.post("/query", { ...scope, extra_keys: [["image-1", 0]] });
  assert.equal(status, 400);
  assert.deepEqual(body, {
    error: "extra_keys: a query is matched by tokens or hashes alone; name a LoRA adapter in lora_name and a salt in cache_salt",
    reason: "unsupported",
    field: "extra_keys",
  });
  assert.equal((await indexer.post("/query", { ...scope, extra_keys: null })).status, 200);
});

void test(
  "a stored event inside a chain without a parent is applied once one of its blocks is known, and named by the doctor until then",
  needsPublishers(),
  async () => {
    await using indexer = await startIndexer();
    await using one = await startPublisher({ rank: 0 });
    await using two = await startPublisher({ rank: 0 });
    await indexer.register({ ...base, endpoint: one.endpoint, replay_endpoint: one.replayEndpoint, instance_id: "one" });
    await indexer.register({ ...base, endpoint: two.endpoint, replay_endpoint: two.replayEndpoint, instance_id: "two" });
    const inside = (names: unknown[], from: number): EventStep => ({
      raw: {
        event_type: "stored",
        block_hashes: names,
        base_block_idx: from,
        token_ids: prompt.slice(from * blockSize, (from + names.length) * blockSize),
      },
    });
    await two.send({ events: [inside([13, 14], 2)] });
    await indexer.taken("two", 1);
    assert.match(await doctorOf(indexer, "two"), /1 events were refused for beginning inside a chain whose prefix is not known.*names no parent_hash/);
    assert.equal((await indexer.services()).find(({ instance_id }) => instance_id === "two")?.freshness.complete, false);
    await one.send({ events: [stored([11, 12, 13], 0, null)] });
    await indexer.taken("one", 1);
    await two.send({ events: [stored([11, 12], 0, null), inside([13, 14], 2)] });
    await indexer.taken("two", 2);
    assert.equal((await indexer.query(scope))["two"]?.longest_matched, 16);
    const { body } = await indexer.post("/query_by_hash", { model: "m", block_size: blockSize, seq_hashes: hashes });
    assert.equal((body as { default: Record<string, Match> }).default["two"]?.longest_matched, 16);
  },
);

void test("the doctor names an engine that was killed after silence_seconds, and its row is not complete", needsPublishers(), async () => {
  await using indexer = await startIndexer(["--indexer.silence_seconds=1"]);
  await using idle = await startPublisher({ rank: 0 });
  await using killed = await startPublisher({ rank: 0 });
  await indexer.register({ ...base, endpoint: idle.endpoint, replay_endpoint: idle.replayEndpoint, instance_id: "idle" });
  await indexer.register({ ...base, endpoint: killed.endpoint, replay_endpoint: killed.replayEndpoint, instance_id: "killed" });
  for (const publisher of [idle, killed]) await publisher.send({ events: [stored([1, 2], 0, null)] });
  await indexer.taken("idle", 1);
  await indexer.taken("killed", 1);
  await killed.kill();
  const says = await indexer.until(
    "the silence is named",
    () => doctorOf(indexer, "killed"),
    (text) => text.includes("unregister"),
  );
  assert.match(
    says,
    new RegExp(
      `${killed.endpoint} has not answered for \\d+ s, and its last event came \\d+ s ago; it counts as dead, and none of its blocks counts until it answers`,
    ),
  );
  const services = await indexer.services();
  assert.equal(services.find(({ instance_id }) => instance_id === "killed")?.freshness.complete, false);
  // An engine without requests sends nothing, and is healthy.
  assert.equal(await doctorOf(indexer, "idle"), "");
});

void test("the engine's own hashes are counted as such, and a row whose events were all refused is not complete", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using publisher = await startPublisher({ rank: 0 });
  await indexer.register({ ...base, block_size: 8, endpoint: publisher.endpoint, replay_endpoint: publisher.replayEndpoint, instance_id: "e" });
  await publisher.send({ events: [stored([1, 2], 0, null)] });
  const refused = await indexer.taken("e", 1);
  assert.equal(refused.freshness.complete, false);
  await using well = await startPublisher({ rank: 0 });
  await indexer.register({ ...base, endpoint: well.endpoint, replay_endpoint: well.replayEndpoint, instance_id: "well" });
  await well.send({ events: [stored([1, 2], 0, null)] });
  const { events } = await indexer.taken("well", 1);
  assert.equal(events["engine_hashes"], 1);
  await indexer.until(
    "complete",
    () => indexer.services(),
    (services) => services.find(({ instance_id }) => instance_id === "well")?.freshness.complete === true,
  );
});

void test("age_ms continues to grow over a restart of the indexer, and lag_ms stays that of the last batch", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using publisher = await startPublisher({ rank: 0 });
  await indexer.register({ ...base, endpoint: publisher.endpoint, replay_endpoint: publisher.replayEndpoint, instance_id: "e" });
  await publisher.send({ events: [stored([1, 2], 0, null)] });
  await indexer.taken("e", 1);
  await publisher.kill();
  const before = (await indexer.services())[0]?.freshness;
  await indexer.kill("SIGTERM");
  await delay(50);
  await indexer.start();
  const after = (await indexer.services())[0]?.freshness;
  assert.equal(after?.source, "snapshot");
  assert.equal(after?.lag_ms, before?.lag_ms);
  assert.ok((after?.age_ms ?? 0) >= (before?.age_ms ?? 0) + 50, `${before?.age_ms} before, ${after?.age_ms} after`);
});
