// Engines that connect to one port of the indexer, and what a registration's and a request's salts find together.
import assert from "node:assert/strict";
import { test } from "node:test";
import { sequenceFrame } from "@svc/contract/kv-event.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { Packr } from "msgpackr";
import { Publisher } from "zeromq";
import { startIndexer } from "./indexer.ts";

const packr = new Packr({ useRecords: false });
const SIZE = 16;
const tokens = Array.from({ length: 3 * SIZE }, (_, at) => at + 1);
const record = { type: "vLLM", modelname: "m", block_size: SIZE, dp_rank: 0 };

/** An engine whose publisher connects, as vLLM's does with an endpoint that has a host. */
function connecting(port: number, topic: string) {
  const publisher = new Publisher({ linger: 0 });
  publisher.connect(`tcp://127.0.0.1:${port}`);
  let sequence = 0;
  return {
    async stores(blocks: number, more: object = {}) {
      const block_hashes = Array.from({ length: blocks }, (_, at) => 1000 + at);
      const event = {
        type: "BlockStored",
        block_hashes,
        parent_block_hash: null,
        token_ids: tokens.slice(0, blocks * SIZE),
        block_size: SIZE,
        medium: "GPU",
        ...more,
      };
      await publisher.send([topic, sequenceFrame(BigInt(sequence++)), packr.pack([Date.now() / 1000, [event], 0])]);
    },
    close: () => publisher.close(),
    [Symbol.dispose]: () => publisher.close(),
  };
}

void test("engines that connect to one port are told apart by their topics kv@POD@MODEL, and a topic that nobody registered is named", async () => {
  await using indexer = await startIndexer(["--indexer.silence_seconds=1"]);
  const [port = 0] = await freePorts(1);
  const endpoint = `tcp://*:${port}`;
  await indexer.register({ ...record, endpoint, instance_id: "a" });
  await indexer.register({ ...record, endpoint, instance_id: "b" });
  using a = connecting(port, "kv@a@m");
  using b = connecting(port, "kv@b:8000@m");
  using other = connecting(port, "kv@a@another");
  const matches = async () => {
    const rows = await indexer.query({ model: "m", block_size: SIZE, token_ids: tokens });
    return [rows?.["a"]?.GPU, rows?.["b"]?.GPU].join();
  };
  // A publisher sends nothing before the subscription of the other side has reached it.
  const again = async (send: () => Promise<void>, wanted: string) =>
    indexer.until(
      `the matches are ${wanted}`,
      async () => {
        await send();
        return matches();
      },
      (seen) => seen === wanted,
    );
  await again(() => a.stores(1), "16,0");
  await again(() => b.stores(3), "16,48");
  await indexer.until(
    "the stray topic is named",
    async () => {
      await other.stores(2);
      return (await indexer.services()).flatMap(({ doctor }) => doctor).join("\n");
    },
    (said) => /name another publisher, the last one by the topic "kv@a@another"/.test(said),
  );
  assert.equal(await matches(), "16,48");
  // The loss of one publisher's connection does not affect the other publisher at the same port.
  b.close();
  await indexer.until(
    "only b is away",
    async () => (await indexer.services()).map(({ instance_id, freshness }) => `${instance_id} ${freshness.state}`).sort(),
    (seen) => seen.join() === "a live,b dead",
  );
  assert.equal(await matches(), "16,0");
  // The port stays open for the other publisher.
  assert.equal((await indexer.post("/unregister", { instance_id: "b", dp_rank: 0 })).status, 200);
  await a.stores(3);
  await indexer.until("a is still heard", matches, (seen) => seen.startsWith("48"));
});

void test("one engine that connects is heard whatever its topic, unless that names another engine", async () => {
  await using indexer = await startIndexer();
  const [port = 0] = await freePorts(1);
  await indexer.register({ ...record, endpoint: `tcp://*:${port}`, instance_id: "a" });
  using plain = connecting(port, "");
  using other = connecting(port, "kv@b@m");
  const gpu = async () => (await indexer.query({ model: "m", block_size: SIZE, token_ids: tokens }))?.["a"]?.GPU;
  await indexer.until(
    "it is heard",
    async () => {
      await plain.stores(1);
      return gpu();
    },
    (seen) => seen === SIZE,
  );
  await indexer.until(
    "the other one is named",
    async () => {
      await other.stores(3);
      return (await indexer.services())[0]?.doctor.join() ?? "";
    },
    (said) => said.includes("kv@b@m"),
  );
  assert.equal(await gpu(), SIZE);
});

void test("blocks of requests with a cache_salt on an engine with an additionalsalt are found under both, and scores need the request's alone", async () => {
  await using indexer = await startIndexer();
  const [port = 0] = await freePorts(1);
  await indexer.register({ ...record, endpoint: `tcp://*:${port}`, instance_id: "a", additionalsalt: "fp8" });
  using engine = connecting(port, "");
  const salted = [["customer"], null, null];
  const asked = { model: "m", block_size: SIZE, token_ids: tokens };
  const gpu = async (more: object) => (await indexer.query({ ...asked, ...more }))?.["a"]?.GPU ?? 0;
  await indexer.until(
    "the salted blocks are there",
    async () => {
      await engine.stores(2, { extra_keys: salted.slice(0, 2) });
      return gpu({ additionalsalt: "fp8", cache_salt: "customer" });
    },
    (seen) => seen === 2 * SIZE,
  );
  // A child names only its parent, and belongs to its parent's salt.
  await engine.stores(1, { block_hashes: [2000], parent_block_hash: 1001, token_ids: tokens.slice(2 * SIZE) });
  await indexer.until(
    "the child is there",
    () => gpu({ additionalsalt: "fp8", cache_salt: "customer" }),
    (seen) => seen === 3 * SIZE,
  );
  for (const more of [{}, { cache_salt: "customer" }, { cache_salt: "fp8" }, { additionalsalt: "fp8" }, { additionalsalt: "customer", cache_salt: "fp8" }])
    assert.equal(await gpu(more), 0, JSON.stringify(more));
  const raw = await fetch(`${indexer.url}/query?model=m&block_size=${SIZE}&additionalsalt=fp8&cache_salt=customer`, {
    method: "POST",
    headers: { "content-type": "application/octet-stream" },
    body: Uint32Array.from(tokens),
  });
  assert.equal(((await raw.json()) as { default: { a: { GPU: number } } }).default.a.GPU, 3 * SIZE);
  const scored = async (more: object) => {
    const { body } = await indexer.post("/score", { model: "m", token_ids: [...tokens, 1], ...more });
    return (body as { default: { a: { matched_tokens: number } } }).default.a.matched_tokens;
  };
  assert.deepEqual([await scored({ cache_salt: "customer" }), await scored({}), await scored({ cache_salt: "fp8" })], [3 * SIZE, 0, 0]);
  // A request without a salt is found under the engine's alone.
  await engine.stores(2, { block_hashes: [3000, 3001] });
  await indexer.until(
    "the others are there",
    () => gpu({ cache_salt: "fp8" }),
    (seen) => seen === 2 * SIZE,
  );
  assert.equal(await scored({}), 2 * SIZE);
});

void test("a cache that runs next to an engine is registered under the engine's identity, and both end with it", async () => {
  await using indexer = await startIndexer();
  const [port = 0, beside = 0] = await freePorts(2);
  const engine = { ...record, endpoint: `tcp://127.0.0.1:${port}`, instance_id: "a" };
  await indexer.register(engine);
  await indexer.register({ ...engine, endpoint: `tcp://127.0.0.1:${beside}`, type: "Mooncake" });
  const other = await indexer.post("/register", { ...engine, endpoint: `tcp://127.0.0.1:${beside}` });
  assert.equal(other.status, 409, "a second engine under one identity is a mistake still");
  await indexer.kill();
  await indexer.start();
  assert.deepEqual(
    (await indexer.services()).map(({ instance_id }) => instance_id),
    ["a", "a"],
  );
  const gone = await indexer.post("/unregister", { instance_id: "a", dp_rank: 0 });
  assert.deepEqual(gone.body, { status: "unregistered successfully", removed_instances: ["a|default|0", "a|default|0"] });
  await indexer.kill();
  await indexer.start();
  assert.deepEqual(await indexer.services(), []);
});
