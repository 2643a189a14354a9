// A real Envoy as the gateway, configured as the Gateway API Inference Extension configures it, with the router as its endpoint picker.
import assert from "node:assert/strict";
import { test } from "node:test";
import { startEnvoy } from "@svc/harness/envoy.ts";
import { needs } from "@svc/harness/needs.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { chat, fit, heard, metric, openIndexer, openRouter, post, startEngine, until } from "./stack.ts";

const LONG = "The blocks of this prompt are computed once and found again by every later turn. ".repeat(20);

void test("through Envoy each conversation stays where its blocks are, and bodies and streams pass unchanged", needs("envoy"), async () => {
  await using indexer = await openIndexer();
  await using a = await startEngine("a", ["--indexer", indexer.url]);
  await using b = await startEngine("b", ["--indexer", indexer.url]);
  await heard(indexer.url, ["a", "b"]);
  const [port = 0] = await freePorts(1);
  await using router = await openRouter([a, b], [`--indexer=${indexer.url}`, `--picker=127.0.0.1:${port}`]);
  await using envoy = await startEnvoy(port, [a.url, b.url]);
  const homes = new Map<number, string | null>();
  for (let turn = 0; turn < 4; turn++) {
    for (let talk = 0; talk < 6; talk++) {
      const { status, headers, json, text } = await post(envoy.url, "/v1/chat/completions", chat(`conversation ${talk}: ${LONG}`));
      assert.equal(status, 200, `${text}\n${envoy.log()}`);
      const engine = headers.get("x-svc-instance");
      assert.equal(homes.get(talk) ?? engine, engine, `conversation ${talk}, turn ${turn}`);
      homes.set(talk, engine);
      assert.equal(Number(headers.get("x-svc-expected-cached-tokens")), json.usage.prompt_tokens_details.cached_tokens);
    }
  }
  assert.equal((await a.seen()).requests + (await b.seen()).requests, 24, "Envoy sent each request to one engine");
  await until(
    "all are counted",
    () => metric(router.url, 'svc_router_prediction_error_tokens_count{direction="equal"}'),
    (count) => count === 24,
  );
  const large = await post(envoy.url, "/v1/chat/completions", chat("x".repeat(400_000)));
  assert.deepEqual([large.status, large.json.usage.prompt_tokens > 400_000], [200, true], large.text.slice(0, 300));
  const stream = await post(envoy.url, "/v1/chat/completions", chat(LONG, { stream: true, max_tokens: 50 }));
  assert.match(stream.text, /^data: .*data: \[DONE\]\n\n$/s);
  assert.equal(stream.text.split("data: ").length, 52);
});

void test(
  "Envoy tries the next engine that the picker named when the first one cannot be reached, and answers the picker's error as it is",
  needs("envoy"),
  async () => {
    await using a = await startEngine("a");
    await using b = await startEngine("b");
    const [port = 0] = await freePorts(1);
    // A long time between two looks, so that the picker still names the engine that is down.
    await using router = await openRouter([a, b], [`--picker=127.0.0.1:${port}`, "--router.poll_ms=60000"]);
    await using envoy = await startEnvoy(port, [a.url, b.url]);
    const first = await post(envoy.url, "/v1/chat/completions", chat(LONG));
    const [dead, alive] = first.headers.get("x-svc-instance") === "a" ? [a, b] : [b, a];
    await dead.kill();
    const second = await post(envoy.url, "/v1/chat/completions", chat(LONG));
    assert.equal(second.status, 200, `${second.text}\n${envoy.log()}`);
    assert.equal((await alive.seen()).requests, 1);
    const unknown = await post(envoy.url, "/v1/chat/completions", chat("hello", { model: "nobody" }));
    assert.deepEqual([unknown.status, unknown.json.error.code], [404, "model_not_found"]);
    assert.equal(await metric(router.url, 'svc_router_refused_total{code="model_not_found"}'), 1);
  },
);

void test("while no engine can be chosen, Envoy's clients get 503 with the reason", needs("envoy"), async () => {
  await using a = await startEngine("a");
  const [port = 0] = await freePorts(1);
  await using router = await openRouter([a], [`--picker=127.0.0.1:${port}`]);
  await using envoy = await startEnvoy(port, [a.url]);
  await a.kill();
  await fit(router.url, []);
  const refused = await post(envoy.url, "/v1/chat/completions", chat("hello"));
  assert.deepEqual([refused.status, refused.json.error.code, refused.headers.get("retry-after")], [503, "no_engine", "1"]);
});
