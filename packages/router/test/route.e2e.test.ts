// A router in front of engines and beside a real indexer: where prompts go, and what their answers say.
import assert from "node:assert/strict";
import { request } from "node:http";
import { test } from "node:test";
import { chat, fit, heard, metric, openIndexer, openRouter, post, startEngine, until } from "./stack.ts";

const LONG = "The blocks of this prompt are computed once and found again by every later turn. ".repeat(20);

void test("a prompt goes to the engine that has its beginning, and the engine's usage is what the router expected", async () => {
  await using indexer = await openIndexer();
  const flags = ["--indexer", indexer.url];
  await using a = await startEngine("a", flags);
  await using b = await startEngine("b", flags);
  await heard(indexer.url, ["a", "b"]);
  // Without memory of its own the router knows only what the indexer says.
  await using router = await openRouter([a, b], [`--indexer=${indexer.url}`, "--router.speculative_seconds=0"]);
  const first = await post(router.url, "/v1/chat/completions", chat(LONG), { "x-svc-engine": "b" });
  assert.equal(first.status, 200, first.text);
  assert.equal(first.headers.get("x-svc-instance"), "b");
  const explained = await until(
    "the indexer has the blocks",
    async () => (await post(router.url, "/v1/chat/completions", chat(LONG), { "x-svc-explain": "1" })).json,
    ({ considered }) => (considered.find(({ engine }) => engine === "b")?.expectedCachedTokens ?? 0) > 1000,
  );
  assert.equal(explained.engine, "b");
  for (let turn = 0; turn < 5; turn++) {
    const answer = await post(router.url, "/v1/chat/completions", chat(LONG));
    assert.equal(answer.headers.get("x-svc-instance"), "b");
    assert.equal(Number(answer.headers.get("x-svc-expected-cached-tokens")), answer.json.usage.prompt_tokens_details.cached_tokens);
    assert.match(answer.json.choices[0]?.message.content ?? "", /^Blocks that match/);
  }
  assert.equal(await metric(router.url, 'svc_router_prediction_error_tokens_count{direction="equal"}'), 6);
  assert.equal(await metric(router.url, 'svc_router_prediction_error_tokens_count{direction="over"}'), 0);
});

void test("a conversation stays where it is without an indexer, by what was sent lately", async () => {
  await using a = await startEngine("a");
  await using b = await startEngine("b");
  await using router = await openRouter([a, b]);
  const messages = [{ role: "user", content: LONG }];
  const engines = new Set<string | null>();
  for (let turn = 0; turn < 6; turn++) {
    const { status, headers, json } = await post(router.url, "/v1/chat/completions", { model: "demo", messages });
    assert.equal(status, 200);
    engines.add(headers.get("x-svc-instance"));
    messages.push({ role: "assistant", content: json.choices[0]?.message.content ?? "" }, { role: "user", content: `turn ${turn}` });
  }
  assert.equal(engines.size, 1);
});

void test("prompts that nobody has go to the engine with less waiting work, and equal ones to either", async () => {
  await using a = await startEngine("a");
  await using b = await startEngine("b");
  await using router = await openRouter([a, b]);
  await Promise.all([a.fault("hold"), b.fault("hold")]);
  const asking = Array.from({ length: 8 }, (_, at) => post(router.url, "/v1/chat/completions", chat(`${at} ${"x".repeat(500)}`)));
  const waiting = async () => [(await a.seen()).waiting, (await b.seen()).waiting];
  await until("all of them wait, half of them on each engine", waiting, ([one, other]) => one === 4 && other === 4);
  await Promise.all([a.fault("none"), b.fault("none")]);
  for (const { status } of await Promise.all(asking)) assert.equal(status, 200);
});

void test("work that others have waiting on an engine counts, as its metrics say", async () => {
  await using a = await startEngine("a");
  await using b = await startEngine("b");
  await using router = await openRouter([a, b]);
  await a.fault("hold");
  const others = Array.from({ length: 5 }, (_, at) => post(a.url, "/v1/chat/completions", chat(`other ${at}`)));
  const engines = async () => ((await (await fetch(`${router.url}/admin/engines`)).json()) as { engines: { load: { waiting: number } | null }[] }).engines;
  await until("the router sees them", engines, (seen) => seen[0]?.load?.waiting === 5);
  for (let at = 0; at < 10; at++) assert.equal((await post(router.url, "/v1/chat/completions", chat(`own ${at}`))).headers.get("x-svc-instance"), "b");
  await a.fault("none");
  await Promise.all(others);
});

void test("when tokens fail, the beginning of the conversation that is known still finds its engine", async () => {
  await using indexer = await openIndexer();
  await using a = await startEngine("a", ["--indexer", indexer.url]);
  await using b = await startEngine("b", ["--indexer", indexer.url]);
  await heard(indexer.url, ["a", "b"]);
  await using router = await openRouter([a, b], [`--indexer=${indexer.url}`]);
  const messages = [{ role: "user", content: LONG }];
  const first = await post(router.url, "/v1/chat/completions", { model: "demo", messages });
  await Promise.all([a.fault("no tokens"), b.fault("no tokens")]);
  const longer = { model: "demo", messages: [...messages, { role: "assistant", content: "yes" }, { role: "user", content: "and?" }] };
  const next = await post(router.url, "/v1/chat/completions", longer);
  assert.deepEqual([next.status, next.headers.get("x-svc-instance")], [200, first.headers.get("x-svc-instance")]);
  assert.equal(await metric(router.url, 'svc_router_placements_total{tokens="prefix"}'), 1);
});

void test("token ids in the request are used as they are, without a call to an engine's tokenizer", async () => {
  await using a = await startEngine("a");
  await using router = await openRouter([a]);
  const prompt = Array.from({ length: 100 }, (_, at) => at + 1);
  for (const expected of ["0", "96"]) {
    const { headers, status } = await post(router.url, "/v1/completions", { model: "demo", prompt });
    assert.deepEqual([status, headers.get("x-svc-expected-cached-tokens")], [200, expected]);
  }
  assert.equal((await a.seen()).tokenized, 0);
});

void test("an equal conversation is tokenized once, by the render path where the engine has it", async () => {
  await using a = await startEngine("a", ["--render"]);
  await using router = await openRouter([a]);
  for (const temperature of [0, 0.5, 1]) await post(router.url, "/v1/chat/completions", chat(LONG, { temperature }));
  assert.equal((await a.seen()).tokenized, 1);
  const explained = await post(router.url, "/v1/chat/completions", chat(LONG), { "x-svc-explain": "1" });
  assert.equal(explained.json.tokens.from, "cache");
  await post(router.url, "/v1/responses", { model: "demo", input: LONG });
  await post(router.url, "/v1/messages", { model: "demo", messages: [{ role: "user", content: LONG }], max_tokens: 4 });
  assert.equal((await a.seen()).tokenized, 3);
  assert.equal(await metric(router.url, 'svc_router_prediction_error_tokens_count{direction="equal"}'), 5);
});

void test("the render path of an engine that has it switched off is called once, and /tokenize from then on", async () => {
  await using a = await startEngine("a");
  await using router = await openRouter([a]);
  for (let turn = 0; turn < 3; turn++) assert.equal((await post(router.url, "/v1/chat/completions", chat(`${LONG} ${turn}`))).status, 200);
  const { rendered, tokenized } = await a.seen();
  assert.deepEqual([rendered, tokenized], [1, 3]);
});

void test("behind an answer without a declared length stands how many tokens the engine had cached", async () => {
  await using a = await startEngine("a");
  await using router = await openRouter([a]);
  for (const expected of [0, 96]) {
    const trailers = await new Promise<NodeJS.Dict<string>>((resolve, reject) => {
      const asking = request(`${router.url}/v1/completions`, { method: "POST", headers: { "content-type": "application/json" } }, (answer) => {
        answer.resume();
        answer.once("end", () => resolve(answer.trailers));
      });
      asking.once("error", reject);
      asking.end(
        JSON.stringify({ model: "demo", prompt: Array.from({ length: 100 }, (_, at) => at + 1), stream: true, stream_options: { include_usage: true } }),
      );
    });
    assert.equal(trailers["x-svc-cached-tokens"], String(expected));
  }
});

void test("where tokens cannot be had, a prompt is placed by load alone, and a metric says so", async () => {
  await using a = await startEngine("a", ["--no-tokenize"]);
  await using router = await openRouter([a]);
  const { status, headers } = await post(router.url, "/v1/chat/completions", chat(LONG));
  assert.deepEqual([status, headers.get("x-svc-expected-cached-tokens")], [200, null]);
  assert.equal(await metric(router.url, 'svc_router_tokens_missing_total{reason="unsupported"}'), 1);
  assert.equal(await metric(router.url, 'svc_router_placements_total{tokens="none"}'), 1);
});

void test("a LoRA adapter's prompts go only to engines that have it, and models of all engines are listed once", async () => {
  await using indexer = await openIndexer();
  await using a = await startEngine("a", ["--indexer", indexer.url]);
  await using b = await startEngine("b", ["--indexer", indexer.url, "--lora", "poet"]);
  await heard(indexer.url, ["a", "b"]);
  await using router = await openRouter([a, b], [`--indexer=${indexer.url}`]);
  for (let turn = 0; turn < 4; turn++) {
    const { headers } = await post(router.url, "/v1/chat/completions", chat(`verse ${turn}`, { model: "poet" }));
    assert.equal(headers.get("x-svc-instance"), "b");
  }
  const { data } = (await (await fetch(`${router.url}/v1/models`)).json()) as { data: { id: string }[] };
  assert.deepEqual(data.map(({ id }) => id).sort(), ["demo", "poet"]);
  const unknown = await post(router.url, "/v1/chat/completions", chat("hello", { model: "nobody" }));
  assert.deepEqual([unknown.status, unknown.json.error.code], [404, "model_not_found"]);
});

void test("an engine that the indexer calls disconnected or dead is never chosen, though it answers requests", async () => {
  await using indexer = await openIndexer();
  await using a = await startEngine("a", ["--indexer", indexer.url]);
  await using b = await startEngine("b");
  const record = { endpoint: "tcp://127.0.0.1:1", type: "vLLM", modelname: "demo", instance_id: "b", block_size: 16, dp_rank: 0 };
  assert.equal((await post(indexer.url, "/register", record)).status, 200);
  await heard(indexer.url, ["a"]);
  await using router = await openRouter([a, b], [`--indexer=${indexer.url}`]);
  await fit(router.url, ["a"]);
  for (let turn = 0; turn < 10; turn++) {
    const answers = await Promise.all([
      post(router.url, "/v1/chat/completions", chat(`prompt ${turn}`)),
      post(router.url, "/v1/embeddings", { model: "demo", input: "text" }),
    ]);
    for (const { headers } of answers) assert.equal(headers.get("x-svc-instance"), "a");
  }
  assert.equal((await b.seen()).requests, 0);
});

void test("the router goes on without its indexer, and uses it again when it is back", async () => {
  await using indexer = await openIndexer();
  await using a = await startEngine("a", ["--indexer", indexer.url]);
  await heard(indexer.url, ["a"]);
  await using router = await openRouter([a], [`--indexer=${indexer.url}`, "--router.indexer_timeout_ms=200"]);
  await indexer.kill("SIGKILL");
  assert.equal((await post(router.url, "/v1/chat/completions", chat("hello"))).status, 200);
  await until(
    "a failure is counted",
    () => metric(router.url, "svc_router_indexer_failures_total"),
    (seen) => seen > 0,
  );
  await indexer.start();
  await until(
    "it is used again",
    async () => /the indexer answers again/.test(router.log()),
    (seen) => seen,
  );
});

void test("a response's next turn goes to the engine that keeps it, and is refused where nobody knows which", async () => {
  await using a = await startEngine("a");
  await using b = await startEngine("b");
  await using router = await openRouter([a, b]);
  for (let turn = 0; turn < 6; turn++) {
    const first = await post(router.url, "/v1/responses", { model: "demo", input: `question ${turn}` });
    const next = await post(router.url, "/v1/responses", { model: "demo", input: "and then?", previous_response_id: first.json.id });
    assert.equal(next.status, 200, next.text);
    assert.equal(next.headers.get("x-svc-instance"), first.headers.get("x-svc-instance"));
    const fetched = await fetch(`${router.url}/v1/responses/${first.json.id}`);
    assert.equal(fetched.status, 200);
  }
  const unknown = await post(router.url, "/v1/responses", { model: "demo", input: "x", previous_response_id: "resp_nobody" });
  assert.deepEqual([unknown.status, unknown.json.error.code], [404, "response_not_found"]);
});

void test("a slip in a request is refused with what was expected, and reaches no engine", async () => {
  await using a = await startEngine("a");
  await using router = await openRouter([a]);
  const sent = await post(router.url, "/v1/chat/completions", chat("sent"), { "x-svc-explain": "0" });
  assert.deepEqual([sent.status, sent.headers.get("x-svc-instance")], [200, "a"]);
  const refused = async (path: string, headers: Record<string, string>) => {
    const { status, headers: answered, json } = await post(router.url, path, chat("not sent"), headers);
    assert.equal(answered.get("x-svc-instance"), null);
    return [status, json.error.code, json.error.message];
  };
  assert.deepEqual(await refused("/v1/chat/completions", { "x-svc-explain": "maybe" }), [
    400,
    "invalid_request",
    'x-svc-explain: expected 1 or 0, got "maybe"',
  ]);
  assert.deepEqual((await refused("//v1/chat/completions", {})).slice(0, 2), [404, "not_found"]);
  assert.deepEqual((await refused("/v1/chat/completions", { "content-encoding": "gzip" })).slice(0, 2), [415, "unsupported_encoding"]);
});

void test("other paths pass through, and an engine can be named", async () => {
  await using a = await startEngine("a");
  await using b = await startEngine("b");
  await using router = await openRouter([a, b]);
  const answer = await post(router.url, "/some/path?with=query", { any: "thing" }, { "x-svc-engine": "b", "x-mine": "kept" });
  assert.deepEqual([answer.status, answer.headers.get("x-svc-instance")], [404, "b"]);
  assert.match(answer.text, /b has no \/some\/path/);
  assert.equal((await b.seen()).headers["x-mine"], "kept");
  const nobody = await post(router.url, "/v1/chat/completions", chat("x"), { "x-svc-engine": "c" });
  assert.deepEqual([nobody.status, nobody.json.error.code], [404, "engine_not_found"]);
});
