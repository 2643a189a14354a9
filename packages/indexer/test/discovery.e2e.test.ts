// Engines that discovery finds, registrations that replicas share, and engines that do not answer any more.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { openHasher } from "@svc/contract/index-client.ts";
import { startEtcd } from "@svc/harness/etcd.ts";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { needs } from "@svc/harness/needs.ts";
import { makePeerCerts } from "@svc/harness/peer-certs.ts";
import { startPodServer } from "@svc/harness/pod-server.ts";
import { SimulatedEngine } from "../src/simulate/engine.ts";
import { startIndexer, type TestIndexer } from "./indexer.ts";

const BLOCK = 16;
const PROMPT = Uint32Array.from({ length: 100 }, (_, at) => at + 1);
const TOKENS = [...PROMPT];

/** An engine that describes itself as vLLM does, with a publisher per data-parallel rank. */
async function startEngine(ranks = 1) {
  const caches = await Promise.all(
    Array.from({ length: ranks }, async (_, rank) => {
      const cache = new SimulatedEngine({
        blockSize: BLOCK,
        capacityBlocks: 100,
        port: 0,
        replayPort: 0,
        host: "127.0.0.1",
        bufferBatches: 1_000,
        rank,
        hash: await openHasher(),
      });
      await cache.start();
      return cache;
    }),
  );
  let blockSize = BLOCK;
  const wildcard = (endpoint: string) => endpoint.replace(/^tcp:\/\/.*:/, "tcp://*:");
  // The endpoints are read now, since a closed socket no longer has one.
  const sources = caches.map(({ endpoint, replayEndpoint }, rank) => [
    rank,
    { publisher: "zmq", endpoint: wildcard(endpoint), replay_endpoint: wildcard(replayEndpoint) },
  ]);
  const http = createServer((request, response) => {
    const path = (request.url ?? "").split("?")[0];
    if (path === "/v1/models") response.end(JSON.stringify({ data: [{ id: "m", owned_by: "vllm" }] }));
    else if (path === "/kv_event_sources") response.end(JSON.stringify(Object.fromEntries(sources)));
    else if (path === "/metrics") response.end(`vllm:cache_config_info{block_size="${blockSize}"} 1\n`);
    else response.writeHead(404).end();
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const close = async () => {
    http.closeAllConnections();
    http.close();
    await Promise.all(caches.map((cache) => cache.close()));
  };
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    caches,
    changeBlockSize: (to: number) => {
      blockSize = to;
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

const registered = (indexer: TestIndexer, ...expected: string[]) =>
  indexer.until(
    `registered are ${expected.join(", ")}`,
    async () => (await indexer.services()).map(({ instance_id, dp_rank, freshness }) => `${instance_id}|${dp_rank}|${freshness.state}`).sort(),
    (seen) => seen.join() === expected.join(),
  );
const asked = { model: "m", block_size: BLOCK, token_ids: TOKENS };

void test("one entry registers all ranks of an engine, and a pod that ends takes its registrations along", async () => {
  await using engine = await startEngine(2);
  await using api = await startPodServer("ml");
  await using indexer = await startIndexer([`--discover=kubernetes:ml?selector=app=engine&api=${api.url}`]);
  assert.deepEqual(await indexer.services(), []);
  api.put("pod-1", { ip: "127.0.0.1", annotations: { "svc-engine": JSON.stringify({ url: engine.url }) } });
  await registered(indexer, "pod-1|0|live", "pod-1|1|live");
  await engine.caches[1]?.run(PROMPT);
  await indexer.until(
    "the second rank's blocks are found",
    () => indexer.query(asked),
    (rows) => rows?.["pod-1"]?.DP["1"] === 96,
  );
  api.put("pod-1", { ip: "127.0.0.1", isEnding: true });
  await registered(indexer);
  assert.deepEqual(await indexer.query(asked), {});
});

void test("a discovered engine that changes its description is registered again, and one that was registered by hand is left alone", async () => {
  await using engine = await startEngine();
  await using indexer = await startIndexer([`--discover=found=${engine.url}`, `--discover=hand=${engine.url}`]);
  const hand = { endpoint: "tcp://127.0.0.1:1", type: "vLLM", modelname: "m", instance_id: "hand", block_size: BLOCK, dp_rank: 7 };
  await registered(indexer, "found|0|live", "hand|0|live");
  await indexer.register(hand);
  engine.changeBlockSize(32);
  await engine.caches[0]?.close();
  const sizes = async () =>
    ((await indexer.services()) as unknown as { instance_id: string; dp_rank: number; block_size: number }[])
      .map((one) => `${one.instance_id}|${one.dp_rank}|${one.block_size}`)
      .sort();
  await indexer.until("discovery's own are registered with the new block size", sizes, (seen) => seen.join() === "found|0|32,hand|0|32,hand|7|16");
});

void test("a registration that discovery made ends after a restart without its source, and one made by /register stays", async () => {
  await using engine = await startEngine();
  const home = makeHome();
  try {
    {
      await using indexer = await startIndexer([`--discover=found=${engine.url}`], { home });
      await registered(indexer, "found|0|live");
      await indexer.register({ endpoint: engine.caches[0]?.endpoint ?? "", type: "vLLM", modelname: "m", instance_id: "hand", block_size: BLOCK, dp_rank: 0 });
      await indexer.kill("SIGTERM");
    }
    await using indexer = await startIndexer([], { home });
    await registered(indexer, "hand|0|live");
  } finally {
    removeHome(home);
  }
});

void test("an engine that does not answer has 0 in all members and is called dead, and counts again when it is back", async () => {
  await using engine = await startEngine();
  await using indexer = await startIndexer([`--discover=e=${engine.url}`, "--indexer.silence_seconds=1", "--indexer.forget_seconds=3600"]);
  await registered(indexer, "e|0|live");
  await engine.caches[0]?.run(PROMPT);
  await indexer.until(
    "its blocks are found",
    () => indexer.query(asked),
    (rows) => rows?.["e"]?.longest_matched === 96,
  );
  await engine.close();
  const row = await indexer.until(
    "it counts as dead",
    async () => (await indexer.query({ ...asked, freshness: true }))?.["e"],
    (seen) => seen?.freshness?.["0"]?.state === "dead",
  );
  assert.deepEqual([row?.longest_matched, row?.GPU, row?.CPU, row?.DISK, row?.DP], [0, 0, 0, 0, { "0": 0 }]);
  assert.equal(row?.uncertain, undefined);
  const says = await indexer.until(
    "the doctor names it",
    async () => (await indexer.services())[0]?.doctor.join(" ") ?? "",
    (seen) => seen.includes("counts as dead"),
  );
  assert.match(says, /has not answered for/);
  const { body } = await indexer.post("/score", { model: "m", token_ids: TOKENS });
  assert.match(JSON.stringify(body), /"e":\{"score":null,"state":"dead"/);
});

void test("a discovered engine that stays away is forgotten after indexer.forget_seconds", async () => {
  await using engine = await startEngine();
  await using indexer = await startIndexer([`--discover=e=${engine.url}`, "--indexer.silence_seconds=1", "--indexer.forget_seconds=2"]);
  await registered(indexer, "e|0|live");
  await engine.close();
  await registered(indexer);
  assert.match(await indexer.doctor(), /the engine e that discovery found is not registered/);
});

void test("an engine that is found and publishes no events is named, and so is a source that cannot be read", async () => {
  const http = createServer((request, response) => {
    if (request.url === "/v1/models") response.end(JSON.stringify({ data: [{ id: "m", owned_by: "vllm" }] }));
    else if (request.url === "/kv_event_sources") response.end("{}");
    else if (request.url === "/metrics") response.end('vllm:cache_config_info{block_size="16"} 1\n');
    else response.writeHead(404).end();
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  try {
    const url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
    await using indexer = await startIndexer([`--discover=quiet=${url}`, "--discover=file:/nowhere/engines.json"]);
    await indexer.until(
      "both are named",
      () => indexer.doctor(),
      (says) => /quiet.*publishes no KV events/.test(says) && /nowhere\/engines\.json cannot be read/.test(says),
    );
  } finally {
    http.closeAllConnections();
    http.close();
  }
});

void test("replicas share registrations through an etcd that needs certificates", needs("etcd"), async () => {
  using certs = makePeerCerts();
  await using etcd = await startEtcd(1, certs);
  await using engine = await startEngine();
  const flags = [`--etcd=${etcd.endpoints.join(",")}`, `--peer-certs=${certs.issue("indexer")}`, "--indexer.plain_clients=true"];
  await using one = await startIndexer(flags);
  await using other = await startIndexer(flags);
  const record = { endpoint: engine.caches[0]?.endpoint ?? "", type: "vLLM", modelname: "m", instance_id: "a", block_size: BLOCK, dp_rank: 0 };
  await one.register(record);
  await registered(other, "a|0|live");
});

void test("replicas share what one of them registers and unregisters, also while one of them was away", needs("etcd"), async () => {
  await using etcd = await startEtcd();
  await using engine = await startEngine();
  const flags = [`--etcd=${etcd.endpoints.join(",")}`];
  await using one = await startIndexer(flags);
  await using other = await startIndexer(flags);
  const record = { endpoint: engine.caches[0]?.endpoint ?? "", type: "vLLM", modelname: "m", instance_id: "a", block_size: BLOCK, dp_rank: 0 };
  await one.register(record);
  await registered(other, "a|0|live");
  await engine.caches[0]?.run(PROMPT);
  for (const each of [one, other])
    await each.until(
      "its blocks are found",
      () => each.query(asked),
      (rows) => rows?.["a"]?.longest_matched === 96,
    );
  const conflict = await other.post("/register", { ...record, block_size: 32 });
  assert.equal(conflict.status, 409);
  await other.kill("SIGTERM");
  await one.register({ ...record, instance_id: "b" });
  assert.equal((await one.post("/unregister", { instance_id: "a", dp_rank: 0 })).status, 200);
  await other.start(flags);
  await registered(other, "b|0|live");
  assert.equal((await other.post("/unregister", { instance_id: "b", dp_rank: 0 })).status, 200);
  await registered(one);
  assert.equal((await one.post("/unregister", { instance_id: "b", dp_rank: 0 })).status, 404);
  await etcd.members[0]?.kill();
  const refused = await one.post("/register", record);
  assert.equal(refused.status, 503);
  assert.match(JSON.stringify(refused.body), /shared through etcd/);
  await registered(one);
});
