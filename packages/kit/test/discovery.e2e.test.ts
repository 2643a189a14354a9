// Where engines are found: each kind of source reports what is there, what comes and what goes, and keeps what it knows while it cannot be read.
import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { startEtcd } from "@svc/harness/etcd.ts";
import { needs } from "@svc/harness/needs.ts";
import { startPodServer } from "@svc/harness/pod-server.ts";
import { until } from "@svc/harness/until.ts";
import { Discovery } from "../src/discovery/discovery.ts";
import { describeEngine } from "../src/discovery/engine-description.ts";
import type { NamedEntry } from "../src/discovery/engine-entry.ts";
import { openEtcd } from "../src/etcd/client.ts";
import { openLog } from "../src/log.ts";

const log = openLog("test", "silent");

function discover(...sources: string[]) {
  let last: readonly NamedEntry[] = [];
  const discovery = new Discovery({ sources, log, onEntries: (entries) => (last = entries) });
  discovery.begin();
  return {
    discovery,
    seen: () => last,
    async finds(...names: string[]) {
      await until(
        `it finds ${names.join(", ")}`,
        () => (discovery.isComplete && last.map(({ name }) => name).join() === names.join() ? true : undefined),
        10,
      ).catch((error: Error) => Promise.reject(new Error(`${error.message}; found ${JSON.stringify(last)}, ${JSON.stringify([...discovery.troubles])}`)));
      return last;
    },
    [Symbol.asyncDispose]: () => discovery.close(),
  };
}

void test("engines of a file are found, and those that a new version of the file adds or drops", async () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-engines-"));
  try {
    const file = join(folder, "engines.json");
    const write = (entries: unknown) => {
      writeFileSync(`${file}.new`, typeof entries === "string" ? entries : JSON.stringify(entries));
      renameSync(`${file}.new`, file);
    };
    write([{ name: "a", url: "http://10.0.0.1:8000", block_size: 16 }, { url: "http://10.0.0.2:8000/" }]);
    await using found = discover(`file:${file}`, "c=http://10.0.0.3:8000");
    const first = await found.finds("a", "10.0.0.2:8000", "c");
    assert.deepEqual(first[0], { name: "a", url: "http://10.0.0.1:8000", block_size: 16 });
    write("[{");
    await until("the broken file is named", () => [...found.discovery.troubles.values()].find((why) => why.includes(file)));
    assert.equal(found.seen().length, 3, "what it said last stays");
    write([{ name: "b", url: "http://10.0.0.1:8000", role: "prefill" }]);
    await found.finds("b", "c");
    assert.equal(found.discovery.troubles.size, 0);
    write([{ name: "b", url: "http://10.0.0.1:8000", rol: "prefill" }]);
    const why = await until("the wrong member is named", () => [...found.discovery.troubles.values()][0]);
    assert.match(why, /entry 1: expected no member "rol"/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

void test("pods with a label are found while they run, through the watch, and again after the history was compacted or the server was away", async () => {
  await using api = await startPodServer("ml");
  api.put("other", { ip: "10.1.0.9", labels: { app: "web" } });
  for (let at = 0; at < 3; at++) api.put(`engine-${at}`, { ip: `10.1.0.${at}` });
  api.put("engine-5", { phase: "Pending" });
  await using found = discover(`kubernetes:ml?selector=app=engine&port=9000&events_port=5557&replay_port=5558&api=${api.url}`);
  const first = await found.finds("engine-0", "engine-1", "engine-2");
  assert.deepEqual(first[1], { name: "engine-1", url: "http://10.1.0.1:9000", events_port: 5557, replay_port: 5558 });
  api.put("engine-5", { ip: "10.1.0.5", annotations: { "svc-engine": '{"url": "http://10.1.0.5:9001", "role": "decode"}' } });
  const more = await found.finds("engine-0", "engine-1", "engine-2", "engine-5");
  assert.deepEqual(more[3], { name: "engine-5", url: "http://10.1.0.5:9001", events_port: 5557, replay_port: 5558, role: "decode" });
  api.put("engine-1", { ip: "10.1.0.1", isEnding: true });
  await found.finds("engine-0", "engine-2", "engine-5");
  api.delete("engine-0");
  await found.finds("engine-2", "engine-5");
  const lists = () => api.asked.filter((one) => !one.includes("watch=1")).length;
  const before = lists();
  api.cut();
  api.put("engine-7", { ip: "10.1.0.7" });
  await found.finds("engine-2", "engine-5", "engine-7");
  api.refuse = 500;
  api.cut();
  await until("the trouble is named", () => [...found.discovery.troubles.values()][0]);
  assert.equal(found.seen().length, 3, "what it said last stays");
  api.delete("engine-7");
  api.put("engine-8", { ip: "10.1.0.8" });
  api.compact();
  api.refuse = undefined;
  await found.finds("engine-2", "engine-5", "engine-8");
  assert.ok(lists() > before);
});

void test("a watch from before a compaction begins with a list again", async () => {
  await using api = await startPodServer();
  api.put("a", { ip: "10.1.0.1" });
  await using found = discover(`kubernetes:default?selector=app=engine&api=${api.url}`);
  await found.finds("a");
  await until("it watches", () => api.asked.find((one) => one.includes("watch=1")));
  // The watch is cut in the moment in which its version becomes too old.
  api.put("b", { ip: "10.1.0.2", labels: { app: "web" } });
  api.put("c", { ip: "10.1.0.3" });
  api.compact();
  api.cut();
  await found.finds("a", "c");
  assert.equal(found.discovery.troubles.size <= 1, true);
});

void test("engines that put themselves into etcd are found, and leave with their lease", needs("etcd"), async () => {
  await using server = await startEtcd();
  const etcd = openEtcd({ endpoints: server.endpoints });
  try {
    await etcd.put("/ml/one", JSON.stringify({ url: "http://10.2.0.1:8000" }));
    await using found = discover(`etcd:${server.endpoints.join(",")}?prefix=/ml/`);
    await found.finds("one");
    const lease = await etcd.lease(60, () => {});
    await etcd.put("/ml/two", JSON.stringify({ url: "http://10.2.0.2:8000", name: "second" }), lease.id);
    await etcd.put("/ml/nonsense", "{");
    await found.finds("one", "second");
    await lease.release();
    await found.finds("one");
  } finally {
    await etcd.close();
  }
});

void test("each address of a name is an engine, and addresses that the name loses are gone", async () => {
  let addresses = ["10.3.0.2", "10.3.0.1"];
  let code = 0;
  const dns = createSocket("udp4");
  dns.on("message", (query, from) => {
    const end = query.indexOf(0, 12) + 5;
    const isA = query.readUInt16BE(end - 4) === 1;
    const answers = isA && code === 0 ? addresses : [];
    const head = Buffer.from(query.subarray(0, end));
    head.writeUInt16BE(0x8180 | code, 2);
    head.writeUInt16BE(answers.length, 6);
    head.fill(0, 8, 12);
    const records = answers.map((address) => Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, ...address.split(".").map(Number)]));
    dns.send(Buffer.concat([head, ...records]), from.port, from.address);
  });
  dns.bind(0, "127.0.0.1");
  await once(dns, "listening");
  try {
    await using found = discover(`dns:engines.test:8000?server=127.0.0.1:${dns.address().port}&every_ms=50&events_port=5557`);
    const first = await found.finds("10.3.0.1:8000", "10.3.0.2:8000");
    assert.deepEqual(first[0], { name: "10.3.0.1:8000", url: "http://10.3.0.1:8000", events_port: 5557 });
    addresses = ["10.3.0.3"];
    await found.finds("10.3.0.3:8000");
    code = 2;
    await until("the trouble is named", () => [...found.discovery.troubles.values()][0]);
    assert.equal(found.seen().length, 1, "what it said last stays");
  } finally {
    dns.close();
  }
});

void test("a wrong source is refused with a sentence that says what was expected", () => {
  const wrong: [string, RegExp][] = [
    ["10.0.0.1:8000", /expected http:\/\/HOST:PORT, NAME=http/],
    ["a b=http://x:1", /NAME: expected letters/],
    ["file:", /expected file:PATH/],
    ["dns:host", /expected dns:HOST:PORT/],
    ["dns:host:80?port=1", /there is no option port/],
    ["kubernetes:ml", /selector is missing/],
    ["kubernetes:ml?selector=a=b", /api=https:\/\/HOST:PORT is missing/],
    ["etcd:x", /expected etcd:http/],
  ];
  for (const [source, says] of wrong)
    assert.throws(
      () => discover(source),
      (error: Error) => error.message.includes(source) && says.test(error.message),
      source,
    );
});

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

void test("vLLM says its model, its block size, and the publisher of each data-parallel rank", async () => {
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

void test("an older vLLM says it in its development mode, and for one without either the error names the missing member", async () => {
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

void test("SGLang says its page size, its ranks and its part in a pair; an engine that connects is listened for", async () => {
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
});
