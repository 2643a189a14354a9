// Pairs of engines, one that computes the prompt and one that answers, as each connector defines them.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { type OpenServer, openServer } from "@svc/harness/server-process.ts";
import { type Connector, type PairEngine, startPairEngine } from "./pair-engines.ts";
import { chat, metric, post, ROUTER } from "./stack.ts";

const LONG = "The blocks of this prompt are computed by one engine and read by another. ".repeat(20);

async function openPairs(connector: Connector, engines: readonly [PairEngine, "prefill" | "decode" | "both"][]): Promise<OpenServer> {
  const home = makeHome();
  const file = join(home, "engines.json");
  const records = engines.map(([{ name, url, bootstrapPort }, role]) => ({ name, url, role, connector, bootstrap_port: bootstrapPort }));
  writeFileSync(file, JSON.stringify(records));
  const server = await openServer([ROUTER], [`--engines=${file}`, "--router.poll_ms=100", "--router.tie_seconds=0", "--router.tokens_timeout_ms=10000"]);
  return {
    ...server,
    async [Symbol.asyncDispose]() {
      await server.kill("SIGKILL");
      removeHome(home);
    },
  };
}

for (const connector of ["nixl", "mooncake", "sglang"] as const) {
  void test(`${connector}: one engine computes the prompt, another one answers, and a longer prompt finds the first one again`, async () => {
    await using p1 = await startPairEngine("p1", connector);
    await using p2 = await startPairEngine("p2", connector);
    await using d1 = await startPairEngine("d1", connector);
    await using router = await openPairs(connector, [
      [p1, "prefill"],
      [p2, "prefill"],
      [d1, "decode"],
    ]);
    const first = await post(router.url, "/v1/chat/completions", chat(LONG, { max_tokens: 32 }));
    assert.equal(first.status, 200, first.text);
    assert.equal(first.json.choices[0]?.message.content, "from d1");
    assert.equal(first.headers.get("x-svc-instance"), "d1");
    const computing = first.headers.get("x-svc-prefill-instance");
    for (let turn = 0; turn < 4; turn++) {
      const again = await post(router.url, "/v1/chat/completions", chat(LONG, { max_tokens: 32 }));
      assert.deepEqual([again.status, again.headers.get("x-svc-prefill-instance")], [200, computing]);
      assert.ok(Number(again.headers.get("x-svc-expected-cached-tokens")) > 1_000);
    }
    const stream = await post(router.url, "/v1/chat/completions", chat(LONG, { stream: true, stream_options: { include_usage: true } }));
    assert.match(stream.text, /from d1.*\[DONE\]/s);
    assert.deepEqual([p1, p2].map(({ computed }) => computed.length).sort(), [0, 6]);
    assert.equal(d1.answered.length, 6);
    assert.equal(d1.bodies[0]?.["max_tokens"], 32, "the one that answers gets the client's own wishes");
    assert.equal(await metric(router.url, 'svc_router_prediction_error_tokens_count{direction="equal"}'), 6);
  });

  void test(`${connector}: when the engine that computes fails, another one computes, and the client sees one whole answer`, async () => {
    await using p1 = await startPairEngine("p1", connector);
    await using p2 = await startPairEngine("p2", connector);
    await using d1 = await startPairEngine("d1", connector);
    await using router = await openPairs(connector, [
      [p1, "prefill"],
      [p2, "prefill"],
      [d1, "decode"],
    ]);
    const first = await post(router.url, "/v1/chat/completions", chat(LONG));
    const [failing, other] = first.headers.get("x-svc-prefill-instance") === "p1" ? [p1, p2] : [p2, p1];
    failing.fail = 503;
    const second = await post(router.url, "/v1/chat/completions", chat(LONG));
    assert.deepEqual([second.status, second.headers.get("x-svc-prefill-instance")], [200, other.name], second.text);
    other.fail = 500;
    const both = await post(router.url, "/v1/chat/completions", chat("nobody computes this"));
    assert.deepEqual([both.status, both.json.error.code], [502, "engine_failed"]);
  });
}

void test("what the engine that computes says of a wrong request reaches the client, and no other engine is tried", async () => {
  await using p1 = await startPairEngine("p1", "nixl");
  await using p2 = await startPairEngine("p2", "nixl");
  await using d1 = await startPairEngine("d1", "nixl");
  await using router = await openPairs("nixl", [
    [p1, "prefill"],
    [p2, "prefill"],
    [d1, "decode"],
  ]);
  p1.fail = 422;
  p2.fail = 422;
  const { status, json } = await post(router.url, "/v1/chat/completions", chat(LONG));
  assert.deepEqual([status, json.error.message.replace(/p\d/, "it")], [422, "it fails"]);
  assert.equal(p1.bodies.length + p2.bodies.length, 1);
  assert.equal(d1.bodies.length, 0);
});

void test("without an engine that computes, a prompt is refused, and the error names who is left and why", async () => {
  await using p1 = await startPairEngine("p1", "sglang");
  await using d1 = await startPairEngine("d1", "sglang");
  await using router = await openPairs("sglang", [
    [p1, "prefill"],
    [d1, "decode"],
  ]);
  assert.equal((await post(router.url, "/v1/chat/completions", chat("one"))).status, 200);
  assert.equal((await fetch(`${router.url}/admin/engines/p1/drain`, { method: "POST" })).status, 200);
  const refused = await post(router.url, "/v1/chat/completions", chat("two"));
  assert.deepEqual([refused.status, refused.json.error.code], [503, "no_engine"]);
  assert.match(refused.json.error.message, /its role is decode, and no partner can be chosen/);
  const explained = await post(router.url, "/v1/chat/completions", chat("three"), { "x-svc-explain": "1" });
  assert.equal(explained.json.engine, null);
});
