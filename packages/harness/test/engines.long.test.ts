// Two real vLLM engines on the CPU behind the router, with an indexer: the router expects exactly what the engines find in their caches.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { makeHome, removeHome } from "../src/home.ts";
import { needs } from "../src/needs.ts";
import { freePorts } from "../src/ports.ts";
import { type OpenServer, openServer } from "../src/server-process.ts";
import { until } from "../src/until.ts";
import { makeModel, startVllm, VLLM_BLOCK, type Vllm, type VllmSetup } from "../src/vllm.ts";
import { rowsOf, type Said, say, settled, Traffic } from "./engines-traffic.ts";

const file = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const INDEXER = file("../../indexer/src/main.ts");
const ROUTER = file("../../router/src/main.ts");
const TEST_MS = 100 * 60_000;
const ADAPTERS = ["poet", "clerk"];
const options = { ...needs("python-vllm"), timeout: TEST_MS };

type Stack = { readonly indexer: OpenServer; readonly router: OpenServer; readonly engines: readonly [Vllm, Vllm] } & AsyncDisposable;

async function openStack(home: string, setup: Omit<VllmSetup, "name" | "home">, routerFlags: readonly string[] = []): Promise<Stack> {
  await using opening = new AsyncDisposableStack();
  const indexer = opening.use(await openServer([INDEXER], [`--home=${home}`, "--indexer.silence_seconds=3", "--indexer.snapshot_interval_seconds=5"]));
  const started = await Promise.allSettled(["a", "b"].map((name) => startVllm({ ...setup, name, home })));
  for (const one of started) if (one.status === "fulfilled") opening.use(one.value);
  for (const one of started) if (one.status === "rejected") throw one.reason as Error;
  const engines = started.map((one) => (one as PromiseFulfilledResult<Vllm>).value) as [Vllm, Vllm];
  for (const { name, eventsPort, replayPort } of engines) {
    const record = {
      endpoint: `tcp://127.0.0.1:${eventsPort}`,
      replay_endpoint: `tcp://127.0.0.1:${replayPort}`,
      type: "vLLM",
      modelname: "tiny",
      instance_id: name,
      block_size: VLLM_BLOCK,
      dp_rank: 0,
    };
    assert.equal((await fetch(`${indexer.url}/register`, { method: "POST", body: JSON.stringify(record) })).status, 200);
  }
  await heard(indexer.url, ["a", "b"]);
  const named = engines.map(({ name, url }) => `--engine=${name}=${url}`);
  const router = opening.use(
    await openServer(
      [ROUTER],
      [...named, `--indexer=${indexer.url}`, "--router.poll_ms=200", "--router.indexer_timeout_ms=5000", "--router.tokens_timeout_ms=30000", ...routerFlags],
    ),
  );
  // A failure before this ends all that was started.
  const stack = opening.move();
  return { indexer, router, engines, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

const heard = (indexer: string, names: readonly string[]) =>
  until("the indexer hears the engines", async () => {
    const rows = await rowsOf(indexer);
    return names.every((name) => rows.some(({ instance_id, freshness }) => instance_id === name && freshness.connected)) || undefined;
  });

type Difference = { at: number; expected: number; cached: number; engine: string };

/** Sends one request after the other, each once the events of the one before have arrived, and returns those whose cache was not as expected. */
async function oneByOne({ router, indexer }: Stack, traffic: Traffic, count: number): Promise<{ differences: Difference[]; cached: number }> {
  const differences: Difference[] = [];
  let all = 0;
  for (let at = 0; at < count; at++) {
    const { asked, answered } = traffic.next();
    const said = await say(router.url, asked);
    assert.equal(said.status, 200, `${JSON.stringify(asked).slice(0, 500)}: ${said.body.slice(0, 1000)}`);
    answered(said.text);
    const { expected, cached = 0, engine } = said;
    assert.ok(expected !== undefined, `the router did not know the tokens of ${JSON.stringify(asked).slice(0, 300)}`);
    if (expected !== cached) differences.push({ at, expected, cached, engine });
    all += cached;
    await settled(indexer.url);
  }
  return { differences, cached: all };
}

void test("the router expects exactly what two real engines find cached, also under eviction and after resets and kills", options, async (t) => {
  const home = makeHome();
  try {
    const model = await makeModel(home, "llama", ADAPTERS);
    const loras = ADAPTERS.map((name) => `${name}=${model}/adapters/${name}`);
    const flags = ["--enable-lora", "--max-loras", "2", "--lora-modules", ...loras, "--enable-auto-tool-choice", "--tool-call-parser", "hermes"];
    // With speculation off, the router knows only what the indexer reports.
    await using stack = await openStack(home, { model, blocks: 160, flags }, ["--router.speculative_seconds=0"]);
    const { indexer, router, engines } = stack;
    const traffic = new Traffic({ seed: 29, models: ["tiny", "tiny", ...ADAPTERS], most: 24 });

    const first = await oneByOne(stack, traffic, 500);
    t.diagnostic(`500 requests one at a time: ${first.cached} cached tokens, ${first.differences.length} differences`);
    assert.deepEqual(first.differences, []);
    assert.ok(first.cached > 10_000, "the conversations find their beginnings");
    const removed = (await rowsOf(indexer.url)).map(({ events }) => events["blocks_removed"] ?? 0);
    assert.ok(
      removed.every((count) => count > 100),
      `both engines evicted: ${removed}`,
    );

    for (const { url } of engines) {
      assert.equal((await fetch(`${url}/reset_prefix_cache`, { method: "POST" })).status, 200);
      // vLLM publishes the reset with its next step.
      await say(url, { path: "/v1/completions", body: { model: "tiny", prompt: [1, 2, 3], max_tokens: 1 } });
    }
    await settled(indexer.url);
    const reset = await oneByOne(stack, traffic, 150);
    assert.deepEqual(reset.differences, [], "after a reset");

    await engines[1].kill();
    await until("the router leaves the dead engine out", async () => (await fits(router.url)).join() === "a" || undefined);
    const without = await oneByOne(stack, traffic, 50);
    assert.deepEqual(without.differences, [], "with one engine");
    await engines[1].start();
    await heard(indexer.url, ["a", "b"]);
    await until("both engines may be chosen", async () => (await fits(router.url)).join() === "a,b" || undefined);
    const again = await oneByOne(stack, traffic, 150);
    assert.deepEqual(again.differences, [], "after the engine is back, empty");

    await indexer.kill("SIGKILL");
    for (let at = 0; at < 10; at++) assert.equal((await say(router.url, traffic.next().asked)).status, 200, "without the indexer");
    await indexer.start();
    await heard(indexer.url, ["a", "b"]);
    await until("what was missed was replayed", async () => (await rowsOf(indexer.url)).every(({ freshness }) => freshness.complete) || undefined);
    // After a query without an answer, the router does not ask the indexer for a second.
    await until("the router asks the indexer again", () => router.log().includes("the indexer answers again") || undefined);
    const restored = await oneByOne(stack, traffic, 100);
    assert.deepEqual(restored.differences, [], "after kill -9 of the indexer");

    await router.kill("SIGKILL");
    await router.start();
    const restarted = await oneByOne(stack, traffic, 50);
    assert.deepEqual(restarted.differences, [], "after kill -9 of the router");

    for (let at = 0; at < 20; at++) {
      const { asked } = traffic.next();
      const through = await say(router.url, asked);
      const cached = await say(router.url, asked, { "x-svc-engine": through.engine });
      const direct = await say(engines.find(({ name }) => name === through.engine)?.url ?? "", asked);
      assert.equal(cached.text, direct.text, "the same text with and without the router");
    }
  } finally {
    removeHome(home);
  }
});

async function fits(router: string): Promise<string[]> {
  const { engines } = (await (await fetch(`${router}/health`)).json()) as { engines: { name: string; fit: boolean }[] };
  return engines.filter(({ fit }) => fit).map(({ name }) => name);
}

void test("with concurrent clients 99 of 100 expectations are exact, and the others exceed no more than what was evicted", options, async (t) => {
  const home = makeHome();
  try {
    const model = await makeModel(home, "llama");
    const flags = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"];
    await using stack = await openStack(home, { model, blocks: 400, flags });
    const { indexer, router } = stack;
    let equal = 0;
    let all = 0;
    let tooMany = 0;
    const above: string[] = [];
    const evicted = async () => (await rowsOf(indexer.url)).reduce((sum, { events }) => sum + (events["blocks_removed"] ?? 0), 0);
    const before = await evicted();
    const talk = async (seed: number) => {
      // Conversations of one client follow each other, as those of one agent do.
      const traffic = new Traffic({ seed, models: ["tiny"], most: 1 });
      for (let turn = 0; turn < 60; turn++) {
        const { asked, answered } = traffic.next();
        // Each client has its own salt, because the router cannot expect blocks that another client's request computes at the same moment.
        const said: Said = await say(router.url, { ...asked, body: { ...asked.body, cache_salt: `client-${seed}` } });
        assert.equal(said.status, 200, said.body.slice(0, 1000));
        answered(said.text);
        all++;
        if (said.expected === said.cached) equal++;
        else if ((said.expected ?? 0) > (said.cached ?? 0)) {
          tooMany += (said.expected ?? 0) - (said.cached ?? 0);
          above.push(`${said.engine}: expected ${said.expected}, cached ${said.cached}`);
        }
      }
    };
    await Promise.all(Array.from({ length: 6 }, (_, seed) => talk(100 + seed)));
    await settled(indexer.url);
    const gone = (await evicted()) - before;
    t.diagnostic(`${equal} of ${all} equal, ${above.length} above: ${above.join("; ")}; ${gone} blocks were evicted meanwhile`);
    assert.ok(equal >= 0.99 * all, `${equal} of ${all} were equal`);
    assert.ok(tooMany <= gone * VLLM_BLOCK, `${tooMany} tokens too many were expected, and ${gone} blocks were evicted meanwhile`);
  } finally {
    removeHome(home);
  }
});

void test(
  "expectations are also exact for an engine that has sliding windows as well as full attention, with the router's own tokenizer",
  options,
  async (t) => {
    const home = makeHome();
    try {
      const model = await makeModel(home, "gemma3");
      const flags = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"];
      await using stack = await openStack(home, { model, blocks: 400, flags }, ["--router.speculative_seconds=0", `--tokenizer=tiny=${model}`]);
      const { differences, cached } = await oneByOne(stack, new Traffic({ seed: 3, models: ["tiny"], most: 12 }), 200);
      t.diagnostic(`200 requests: ${cached} cached tokens, ${differences.length} differences`);
      assert.deepEqual(differences, []);
      const [, local = "0"] = /^svc_router_placements_total\{tokens="local"\} (\d+)/m.exec(await (await fetch(`${stack.router.url}/metrics`)).text()) ?? [];
      assert.ok(Number(local) > 100, `${local} prompts were tokenized by the router itself`);
      assert.ok(cached > 3_000, "the conversations find their beginnings");
    } finally {
      removeHome(home);
    }
  },
);

void test(
  "a prefix that one engine computed is loaded by the other one through the store, as the indexer says, with the same text, until the store drops it",
  options,
  async (t) => {
    const home = makeHome();
    try {
      const model = await makeModel(home, "llama");
      const [rpcPort, live, replay] = await freePorts(3);
      await using master = await openServer(
        [file("../../store/src/master/main.ts")],
        [
          ...[`--home=${home}`, `--rpc_port=${rpcPort}`, "--rpc_address=127.0.0.1", "--brand=mooncake,svc", "--client_ttl=60s"],
          ...[
            "--enable_kv_events=true",
            "--kv_events_backend_id=store",
            `--kv_events_bind_endpoint=tcp://127.0.0.1:${live}`,
            `--kv_events_replay_endpoint=tcp://127.0.0.1:${replay}`,
          ],
        ],
      );
      const config = join(home, "store.json");
      const memory = { global_segment_size: "128MB", local_buffer_size: "64MB", protocol: "tcp", device_name: "" };
      writeFileSync(config, JSON.stringify({ metadata_server: "P2PHANDSHAKE", master_server_address: `127.0.0.1:${rpcPort}`, ...memory }));
      const flags = ["--kv-transfer-config", JSON.stringify({ kv_connector: "MooncakeStoreConnector", kv_role: "kv_both" })];
      await using stack = await openStack(home, { model, blocks: 160, flags, env: { MOONCAKE_CONFIG_PATH: config } });
      const { indexer } = stack;
      const [a, b] = stack.engines;
      const record = { endpoint: `tcp://127.0.0.1:${live}`, replay_endpoint: `tcp://127.0.0.1:${replay}`, type: "Mooncake", modelname: "tiny" };
      const pool = { ...record, instance_id: "pool", block_size: VLLM_BLOCK, dp_rank: 0 };
      assert.equal((await fetch(`${indexer.url}/register`, { method: "POST", body: JSON.stringify(pool) })).status, 200);
      await heard(indexer.url, ["pool"]);
      const prompt = Array.from({ length: 20 * VLLM_BLOCK + 5 }, (_, at) => (at * 7) % 256);
      const asked = { path: "/v1/completions", body: { model: "tiny", prompt, max_tokens: 8, temperature: 0, ignore_eos: true } };
      const rowOf = async (instance: string) => {
        const query = { model: "tiny", block_size: VLLM_BLOCK, token_ids: prompt };
        const answer = await (await fetch(`${indexer.url}/query`, { method: "POST", body: JSON.stringify(query) })).json();
        return (answer as Record<string, Record<string, { GPU: number; CPU: number; longest_matched: number }>>)["default"]?.[instance];
      };
      /** An engine answers 200 and resets nothing while the connector still uses blocks, so this asks until the indexer has heard of it. */
      const resetGPUs = async () => {
        for (const { name, url } of stack.engines) {
          await until(`the GPU cache of ${name} is reset`, async () => {
            assert.equal((await fetch(`${url}/reset_prefix_cache`, { method: "POST" })).status, 200);
            await say(url, { path: "/v1/completions", body: { model: "tiny", prompt: [1, 2, 3], max_tokens: 1 } });
            await settled(indexer.url);
            return (await rowOf(name))?.GPU === 0 ? true : undefined;
          });
        }
      };
      const computed = await say(a.url, asked);
      assert.equal(computed.status, 200, computed.body);
      const row = await until("the indexer finds the blocks in the store, for the engine that has computed nothing", async () => {
        const seen = await rowOf("b");
        return (seen?.CPU ?? 0) >= 20 * VLLM_BLOCK ? seen : undefined;
      });
      assert.deepEqual([row.GPU, row.CPU], [0, 20 * VLLM_BLOCK]);
      const loaded = await say(b.url, asked);
      t.diagnostic(`the second engine found ${loaded.cached} of ${prompt.length} tokens, and the indexer had said ${row.longest_matched}`);
      assert.equal(loaded.status, 200, loaded.body);
      assert.equal(loaded.cached, row.longest_matched, b.log().slice(-3000));
      assert.equal(loaded.text, computed.text);

      // The engines' GPU caches are reset while the store keeps the blocks, so both engines load them from the store again.
      await resetGPUs();
      for (const name of ["a", "b"]) assert.equal((await rowOf(name))?.CPU, 20 * VLLM_BLOCK, name);
      const kept = await say(a.url, asked);
      assert.equal(kept.status, 200, `${kept.body}\n${a.log().slice(-3000)}`);
      assert.deepEqual([kept.cached, kept.text], [20 * VLLM_BLOCK, computed.text]);

      // When the store has dropped the blocks, too, no engine finds them.
      await resetGPUs();
      assert.equal((await fetch(`${master.url}/api/v1/remove_all?force=true`, { method: "POST" })).status, 200);
      for (const name of ["a", "b"])
        await until(`the indexer knows that ${name} and the store are empty`, async () => ((await rowOf(name))?.longest_matched === 0 ? true : undefined));
      const gone = await say(a.url, asked);
      assert.equal(gone.status, 200, `${gone.body}\n${a.log().slice(-3000)}`);
      assert.deepEqual([gone.cached, gone.text], [0, computed.text]);
    } finally {
      removeHome(home);
    }
  },
);
