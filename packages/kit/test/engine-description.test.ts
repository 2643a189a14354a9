// Engines describe themselves, each kind and release in its own form.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { describeEngine } from "../src/discovery/engine-description.ts";

async function startDescribed(answers: Readonly<Record<string, unknown>>) {
  const server = createServer((request, response) => {
    const answer = answers[(request.url ?? "").split("?")[0] ?? ""];
    const text = typeof answer === "string" ? answer : JSON.stringify(answer);
    response.writeHead(answer === undefined ? 404 : 200).end(text);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    entry: { name: "e", url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
    },
  };
}
const models = (owner: string) => ({
  data: [
    { id: "poet", owned_by: owner, parent: "llama" },
    { id: "llama", owned_by: owner, parent: null },
  ],
});

void test("vLLM reports its model, its block size, and the publisher of each data-parallel rank", async () => {
  const config = { enable_kv_cache_events: true, publisher: "zmq", buffer_steps: 1, hwm: 1, max_queue_size: 1, topic: "" };
  await using engine = await startDescribed({
    "/v1/models": models("vllm"),
    "/kv_event_sources": {
      "0": { ...config, endpoint: "tcp://*:5557", replay_endpoint: "tcp://*:5558" },
      "1": { ...config, endpoint: "tcp://0.0.0.0:5600", replay_endpoint: null },
    },
    "/metrics": '# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size="32",cache_dtype="auto",engine="0"} 1.0\n',
  });
  assert.deepEqual(await describeEngine(engine.entry), {
    type: "vLLM",
    model: "llama",
    blockSize: 32,
    publishers: [
      { rank: 0, endpoint: "tcp://127.0.0.1:5557", replayEndpoint: "tcp://127.0.0.1:5558" },
      { rank: 1, endpoint: "tcp://127.0.0.1:5600", replayEndpoint: "" },
    ],
    role: "both",
    bootstrapPort: undefined,
  });
  const own = await describeEngine({ ...engine.entry, modelname: "mine", block_size: 16, events_port: 7000, dp_size: 2 });
  assert.deepEqual([own.model, own.blockSize, own.publishers.map(({ endpoint }) => endpoint)], ["mine", 16, ["tcp://127.0.0.1:7000", "tcp://127.0.0.1:7001"]]);
});

void test("an older vLLM reports the same in its development mode, and for one without that mode the error names the missing member", async () => {
  const info = {
    vllm_config: {
      kv_events_config: { enable_kv_cache_events: true, publisher: "zmq", endpoint: "tcp://*:5557", replay_endpoint: "tcp://*:5600" },
      cache_config: { block_size: 16 },
      parallel_config: { data_parallel_size: 2 },
      kv_transfer_config: { kv_role: "kv_producer" },
    },
  };
  await using engine = await startDescribed({ "/v1/models": models("vllm"), "/server_info": info });
  const { publishers, role } = await describeEngine(engine.entry);
  assert.equal(role, "prefill");
  assert.deepEqual(publishers[1], { rank: 1, endpoint: "tcp://127.0.0.1:5558", replayEndpoint: "tcp://127.0.0.1:5601" });
  await using silent = await startDescribed({ "/v1/models": models("vllm") });
  await assert.rejects(describeEngine(silent.entry), /does not say its block size: give "block_size" in the entry/);
});

void test("SGLang reports its page size, its ranks and its role in a pair; for an engine that connects, the indexer listens", async () => {
  const info = {
    served_model_name: "llama",
    page_size: 64,
    dp_size: 2,
    kv_events_config: '{"publisher": "zmq", "endpoint": "tcp://indexer:5557", "replay_endpoint": "tcp://*:5600"}',
    disaggregation_mode: "prefill",
    disaggregation_bootstrap_port: 9100,
  };
  await using engine = await startDescribed({ "/v1/models": models("sglang"), "/server_info": info });
  assert.deepEqual(await describeEngine(engine.entry), {
    type: "SGLang",
    model: "llama",
    blockSize: 64,
    publishers: [
      { rank: 0, endpoint: "tcp://*:5557", replayEndpoint: "tcp://127.0.0.1:5600" },
      { rank: 1, endpoint: "tcp://*:5558", replayEndpoint: "tcp://127.0.0.1:5601" },
    ],
    role: "prefill",
    bootstrapPort: 9100,
  });
  const publishers = async (kv_events_config: string | null) => {
    await using other = await startDescribed({ "/v1/models": models("sglang"), "/server_info": { page_size: 64, kv_events_config } });
    return (await describeEngine(other.entry)).publishers;
  };
  assert.deepEqual(await publishers('{"publisher": "zmq"}'), [{ rank: 0, endpoint: "tcp://127.0.0.1:5557", replayEndpoint: "" }], "its default endpoint");
  for (const config of [null, "{}", '{"endpoint": "tcp://*:5557"}']) assert.deepEqual(await publishers(config), [], "no publisher");
});
