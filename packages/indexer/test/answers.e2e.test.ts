// Tests what queries answer: media and ranks, the shared store, separate namespaces, exact numbers, every form of a request.
import assert from "node:assert/strict";
import { test } from "node:test";
import { IndexClient, openHasher } from "@svc/contract/index-client.ts";
import type { QueryAnswer } from "@svc/contract/indexer.ts";
import { Packr, Unpackr } from "msgpackr";
import { parseExact } from "../src/http/exact-json.ts";
import { startIndexer } from "./indexer.ts";
import { type EventStep, needsPublishers, startPublisher } from "./publisher.ts";

const blockSize = 16;
const prompt = Array.from({ length: 70 }, (_, i) => 7 * i + 3);
const scope = { model: "m", block_size: blockSize };
const hashes = [...(await openHasher())(Uint32Array.from(prompt), blockSize)];
const base = { type: "vLLM", modelname: "m", block_size: blockSize, dp_rank: 0 };
const max = 0xffffffffffffffffn;

function engine(from: number, to: number, more: EventStep = {}): EventStep {
  const block_hashes = Array.from({ length: to - from }, (_, i) => 100 + from + i);
  return {
    kind: "stored",
    block_hashes,
    parent_block_hash: from === 0 ? null : 99 + from,
    token_ids: prompt.slice(from * 16, to * 16),
    block_size: 16,
    ...more,
  };
}
let eventId = 0;
function envelope(event_type: string, from: number, to: number, more: EventStep = {}): EventStep {
  return { raw: { event_id: eventId++, timestamp: null, event_type, seq_hashes: hashes.slice(from, to), base_block_idx: from, parent_hash: null, ...more } };
}

void test("each medium is matched as a prefix of its own, and DP joins a rank's media with the shared store's", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using one = await startPublisher({ rank: 0 });
  await using store = await startPublisher();
  await indexer.register({ ...base, endpoint: one.endpoint, replay_endpoint: one.replayEndpoint, instance_id: "a" });
  await indexer.register({ ...base, endpoint: store.endpoint, replay_endpoint: store.replayEndpoint, type: "Mooncake", instance_id: "pool" });
  await one.send({ events: [engine(0, 2), engine(2, 4, { medium: "CPU_PINNED" })] });
  await indexer.taken("a", 1);
  const row = (longest: number, GPU: number, CPU: number, DISK: number) => ({ longest_matched: longest, GPU, CPU, DISK, DP: { "0": longest } });
  assert.deepEqual(await indexer.query({ ...scope, token_ids: prompt }), { a: row(64, 32, 0, 0), pool: row(0, 0, 0, 0) });
  await one.send({ events: [{ kind: "removed", block_hashes: [102], medium: "CPU" }] });
  await indexer.taken("a", 2);
  assert.equal((await indexer.query({ ...scope, token_ids: prompt }))["a"]?.longest_matched, 32);
  // The master publishes maps without dimensions, with hashes as numbers, aliases next to them, and always rank 0.
  const key = (depth: number, medium: string): EventStep => ({
    raw: {
      event_id: eventId++,
      timestamp: 1,
      event_type: "stored",
      type: "BlockStored",
      model_name: null,
      block_size: null,
      tenant_id: "default",
      backend_id: "daemon",
      medium,
      dp_rank: null,
      object_key: String(hashes[depth]),
      seq_hashes: [hashes[depth]],
      block_hashes: [BigInt.asIntN(64, hashes[depth] ?? 0n)],
      base_block_idx: 0,
      parent_hash: null,
      token_ids: null,
    },
  });
  await store.send({ master: true, events: [key(0, "disk"), key(2, "cpu"), key(3, "disk")] });
  await indexer.taken("pool", 1);
  assert.deepEqual(await indexer.query({ ...scope, token_ids: prompt }), { a: row(64, 32, 0, 16), pool: row(16, 0, 0, 16) });
  const explained = (await indexer.post("/explain", { ...scope, token_ids: prompt, instance_id: "pool" })).body as {
    default: { instances: Record<string, { reasons: { because: string }[] }> };
  };
  assert.match(explained.default.instances["pool"]?.reasons[0]?.because ?? "", /block 1 \(hash \d+\) .* held by a rank 0 on GPU/);
  const removed = await indexer.post("/unregister", { instance_id: "a", dp_rank: 0 });
  assert.deepEqual(removed, { status: 200, body: { status: "unregistered successfully", removed_instances: ["a|default|0"] } });
  assert.deepEqual(await indexer.query({ ...scope, token_ids: prompt }), { pool: row(16, 0, 0, 16) });
});

void test("tenants, LoRA adapters, salts and models never mix, and one engine's removal leaves another's blocks", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using one = await startPublisher({ rank: 0 });
  await using two = await startPublisher({ rank: 0 });
  await indexer.register({ ...base, endpoint: one.endpoint, replay_endpoint: one.replayEndpoint, instance_id: "a" });
  await indexer.register({ ...base, endpoint: two.endpoint, replay_endpoint: two.replayEndpoint, instance_id: "b" });
  await one.send({
    events: [
      envelope("stored", 0, 1),
      envelope("stored", 0, 2, { lora_name: "adapter" }),
      envelope("stored", 0, 3, { additional_salt: "salt" }),
      envelope("stored", 0, 4, { tenant_id: "other" }),
      engine(0, 2, { lora_id: 9, block_hashes: [1, 2] }),
      engine(0, 1, { block_hashes: [5], extra_keys: [["customer"]] }),
      engine(1, 3, { block_hashes: [6, 7], parent_block_hash: 5 }),
      engine(0, 4, { block_hashes: [21, 22, 23, 24], extra_keys: [null, [["image-1", 3]], null, null], lora_name: "vision" }),
    ],
  });
  await two.send({ events: [envelope("stored", 0, 1)] }, { events: [{ kind: "removed", block_hashes: [1] }, envelope("removed", 0, 1)] });
  await indexer.taken("a", 1);
  await indexer.taken("b", 2);
  const tokens = async (more: Record<string, unknown>) =>
    (await indexer.query({ ...scope, token_ids: prompt, instance_id: "a", ...more }))["a"]?.longest_matched;
  assert.equal(await tokens({}), 16);
  assert.equal(await tokens({ lora_name: "adapter" }), 32);
  assert.equal(await tokens({ cache_salt: "salt" }), 48);
  assert.equal(await tokens({ tenant_id: "other" }), 64);
  assert.equal(await tokens({ lora_id: 9 }), 32);
  assert.equal(await tokens({ lora_id: 8 }), 0);
  assert.equal(await tokens({ cache_salt: "customer" }), 48);
  assert.equal(await tokens({ lora_name: "vision" }), 16);
  assert.equal(await tokens({ model: "another" }), 0);
  assert.equal(await tokens({ block_size: 8 }), 0);
  assert.equal((await indexer.query({ ...scope, token_ids: prompt }))["b"]?.longest_matched, 0);
  await one.send({ events: [envelope("cleared", 0, 0, { lora_name: "adapter", seq_hashes: undefined })] });
  await indexer.taken("a", 2);
  assert.equal(await tokens({ lora_name: "adapter" }), 0);
  assert.equal(await tokens({ cache_salt: "salt" }), 48);
});

void test("an event_id that is not above the last one is skipped, and a jump is counted", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using one = await startPublisher({ rank: 0 });
  await indexer.register({ ...base, endpoint: one.endpoint, replay_endpoint: one.replayEndpoint, instance_id: "a" });
  const numbered = (event_id: number, type: string, from: number, to: number) => envelope(type, from, to, { event_id });
  await one.send({ events: [numbered(1, "stored", 0, 2), numbered(1, "removed", 0, 2), numbered(5, "stored", 2, 3), numbered(4, "removed", 2, 3)] });
  const { events } = await indexer.taken("a", 1);
  assert.equal(events["duplicate_event_id"], 2);
  assert.equal(events["event_id_jump"], 1);
  assert.equal((await indexer.query({ ...scope, token_ids: prompt }))["a"]?.longest_matched, 48);
});

void test("u64 hashes are exact at both ends, as numbers and as strings, in both directions", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using one = await startPublisher({ rank: 0 });
  await indexer.register({ ...base, endpoint: one.endpoint, replay_endpoint: one.replayEndpoint, instance_id: "a" });
  const edges = [0n, 1n, 2n ** 53n - 1n, 2n ** 53n, 2n ** 53n + 1n, 2n ** 63n - 1n, 2n ** 63n, max - 1n, max];
  await one.send({ events: [envelope("stored", 0, 0, { seq_hashes: edges })] });
  await indexer.taken("a", 1);
  for (const list of [edges, edges.map(String)]) {
    const answer = await indexer.query({ ...scope, seq_hashes: list });
    assert.equal(answer["a"]?.longest_matched, edges.length * 16);
  }
  for (const near of [2n ** 53n + 2n, 2n ** 63n + 1n]) assert.equal((await indexer.query({ ...scope, seq_hashes: [near] }))["a"]?.longest_matched, 0);
  const old = await indexer.post("/query_by_hash", `{"model":"m","block_size":16,"block_hash":[0,"1"],"lora_name":null}`);
  assert.equal((old.body as QueryAnswer)["default"]?.["a"]?.longest_matched, 32);
  const view = await (await fetch(`${indexer.url}/global_view?cursor=0`)).text();
  assert.match(view, /"seq_hash":18446744073709551615[,}]/);
  const seen = (parseExact(view) as { blocks: { seq_hash: bigint | number }[] }).blocks.map(({ seq_hash }) => BigInt(seq_hash));
  assert.deepEqual(
    seen.sort((a, b) => (a < b ? -1 : 1)),
    edges,
  );
  assert.match(await (await fetch(`${indexer.url}/global_view?cursor=0&u64=string`)).text(), /"seq_hash":"18446744073709551615"/);
});

void test(
  "a query has the same answer as JSON, msgpack, raw bytes, in a batch and through the client, and reports freshness on request",
  needsPublishers(),
  async () => {
    await using indexer = await startIndexer();
    await using one = await startPublisher({ rank: 0 });
    await indexer.register({ ...base, endpoint: one.endpoint, replay_endpoint: one.replayEndpoint, instance_id: 'ä"b' });
    await one.send({ events: [engine(0, 3)] });
    await indexer.taken('ä"b', 1);
    const expected = { default: { 'ä"b': { longest_matched: 48, GPU: 48, CPU: 0, DISK: 0, DP: { "0": 48 } } } };
    const tokens = Uint32Array.from(prompt);
    const client = new IndexClient(indexer.url);
    assert.deepEqual((await indexer.post("/query", { ...scope, token_ids: prompt })).body, expected);
    assert.deepEqual(
      (await indexer.post("/query", JSON.stringify({ ...scope, token_ids: prompt, cache_salt: null, note: [1, { a: 2 }] }, null, 2))).body,
      expected,
    );
    assert.deepEqual(await client.query(tokens, { model: "m", blockSize }), expected);
    assert.deepEqual(await client.queryByHash(BigUint64Array.from(hashes), { model: "m", blockSize }), expected);
    const body = new Packr({ useRecords: false }).pack({ ...scope, seq_hashes: hashes });
    const packed = await fetch(`${indexer.url}/query_by_hash`, { method: "POST", body, headers: { "content-type": "application/msgpack" } });
    assert.deepEqual(new Unpackr({ mapsAsObjects: true }).unpack(Buffer.from(await packed.arrayBuffer())), expected);
    const batch = (
      await indexer.post("/query_batch", { queries: [{ ...scope, token_ids: prompt }, { ...scope, seq_hashes: hashes.slice(0, 1) }, { model: "m" }] })
    ).body as { results: unknown[] };
    assert.deepEqual(batch.results[0], expected);
    assert.deepEqual(batch.results[2], { error: "block_size: is missing", reason: "missing", field: "block_size" });
    const fresh = await client.query(tokens, { model: "m", blockSize, freshness: true });
    const freshness = fresh["default"]?.['ä"b']?.freshness?.["0"];
    assert.equal(freshness?.last_sequence, 0);
    assert.equal(freshness?.gap, false);
    assert.match(freshness?.source ?? "", /event|replay/);
  },
);

void test("an invalid request is answered with reason, field and index under the fitting status", needsPublishers(), async () => {
  await using indexer = await startIndexer(["--indexer.max_body_bytes=2000"]);
  const record = { ...base, endpoint: "tcp://127.0.0.1:9", instance_id: "a" };
  await indexer.register(record);
  await indexer.register(record);
  const cases: [string, unknown, number, string, string?, number?][] = [
    ["/query", "{", 400, "invalid_json"],
    ["/query", { ...scope }, 400, "missing", "token_ids"],
    ["/query", { ...scope, token_ids: [1, -1] }, 400, "out_of_range", "token_ids", 1],
    ["/query", { ...scope, token_ids: [1, 1.5] }, 400, "invalid_type", "token_ids", 1],
    ["/query", { ...scope, block_size: 0, token_ids: [] }, 400, "out_of_range", "block_size"],
    ["/query", { ...scope, token_ids: [], lora_id: 1, lora_name: "x" }, 400, "unsupported", "lora_id"],
    ["/query?freshness=maybe", { ...scope, token_ids: [] }, 400, "invalid_value", "freshness"],
    ["/query_by_hash", { ...scope, seq_hashes: ["18446744073709551616"] }, 400, "invalid_value", "seq_hashes", 0],
    ["/query", " ".repeat(3000), 413, "too_large"],
    ["/register", { ...record, type: "other" }, 400, "invalid_value", "type"],
    ["/register", { ...record, endpoint: "http://x" }, 400, "invalid_value", "endpoint"],
    ["/register", { ...record, colour: 1 }, 400, "unknown_field", "colour"],
    ["/register", { ...record, block_size: 32 }, 409, "invalid_registration"],
    ["/unregister", { instance_id: "b", dp_rank: 0 }, 404, "not_found"],
    ["/nothing", {}, 404, "not_found"],
  ];
  for (const [path, body, status, reason, field, index] of cases) {
    const answer = await indexer.post(path, body);
    const { error, ...rest } = answer.body as { error: string };
    assert.equal(answer.status, status, `${path} ${error}`);
    assert.deepEqual(rest, { reason, ...(field === undefined ? {} : { field }), ...(index === undefined ? {} : { index }) }, `${path} ${error}`);
  }
  const twice = await fetch(`${indexer.url}/query?model=a&block_size=16&model=b`, { method: "POST", headers: { "content-type": "application/octet-stream" } });
  assert.deepEqual([twice.status, ((await twice.json()) as { field: string }).field], [400, "model"]);
  const wrongMethod = await fetch(`${indexer.url}/query`);
  assert.equal(wrongMethod.status, 405);
  assert.deepEqual((await indexer.post("/query", { ...scope, token_ids: [], instance_id: "unknown" })).body, {
    default: { unknown: { longest_matched: 0, GPU: 0, CPU: 0, DISK: 0, DP: {} } },
  });
});
