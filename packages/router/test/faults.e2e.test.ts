// Engines that are killed, slow, silent, or answer with garbage or half an answer, and clients that leave.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { chat, fit, metric, openRouter, openSilent, post, startEngine, until } from "./stack.ts";

const stream = (content: string, more: object = {}) => chat(content, { stream: true, ...more });

void test("when an engine is killed under 200 streams, those without a first byte are answered elsewhere and the others end with an error", async () => {
  const flags = ["--token-ms", "100"];
  await using a = await startEngine("a", flags);
  await using b = await startEngine("b", flags);
  await using router = await openRouter([a, b]);
  const open = (at: number, tokens: number) => post(router.url, "/v1/chat/completions", stream(`${at} ${"y".repeat(50)}`, { max_tokens: tokens }));
  const states = async () => ({ a: await a.seen(), b: await b.seen() });
  const answering = Array.from({ length: 100 }, (_, at) => open(at, 200));
  await until("100 streams are answering", states, (seen) => seen.a.running + seen.b.running === 100 && seen.a.running > 0);
  await Promise.all([a.fault("hold"), b.fault("hold")]);
  const waiting = Array.from({ length: 100 }, (_, at) => open(1_000 + at, 2));
  const { waiting: first } = (await until("100 streams are waiting", states, (seen) => seen.a.waiting + seen.b.waiting === 100)).a;
  await a.kill();
  await b.fault("none");
  const early = await Promise.all(waiting);
  const late = await Promise.all(answering);
  assert.ok(first > 0, "no stream waited on the killed engine");
  // Streams that had no byte yet are whole, whichever engine began them.
  assert.equal(early.filter(({ status, text }) => status === 200 && text.endsWith("data: [DONE]\n\n")).length, 100);
  assert.ok(early.every(({ headers }) => headers.get("x-svc-instance") === "b"));
  const cut = late.filter(({ text }) => !text.endsWith("data: [DONE]\n\n"));
  assert.ok(cut.length > 0, "no stream was cut");
  for (const { text, headers } of cut) {
    assert.equal(headers.get("x-svc-instance"), "a");
    assert.match(text, /"code":"engine_failed"\}\}\n\n$/);
  }
  assert.equal(await metric(router.url, 'svc_router_retries_total{engine="a"}'), first);
});

void test("no request goes to an engine that is down, and it is used again once its health answers", async () => {
  await using a = await startEngine("a");
  await using b = await startEngine("b");
  await using router = await openRouter([a, b]);
  await a.kill();
  await fit(router.url, ["b"]);
  const before = await metric(router.url, 'svc_router_retries_total{engine="a"}');
  for (let at = 0; at < 20; at++) assert.equal((await post(router.url, "/v1/chat/completions", chat(`prompt ${at}`))).headers.get("x-svc-instance"), "b");
  assert.equal(await metric(router.url, 'svc_router_retries_total{engine="a"}'), before);
  await a.start();
  await fit(router.url, ["a", "b"]);
  const answer = await post(router.url, "/v1/chat/completions", chat("again"), { "x-svc-engine": "a" });
  assert.deepEqual([answer.status, answer.headers.get("x-svc-instance")], [200, "a"]);
});

void test("an engine that is not ready or answers with garbage costs one retry, and the client sees a whole answer", async () => {
  await using a = await startEngine("a");
  await using b = await startEngine("b");
  await using router = await openRouter([a, b], ["--router.circuit_failures=1000"]);
  for (const mode of ["503", "garbage"]) {
    await a.fault(mode);
    for (let at = 0; at < 8; at++) {
      const { status, headers, text } = await post(router.url, "/v1/chat/completions", chat(`${mode} ${at}`));
      assert.deepEqual([status, headers.get("x-svc-instance")], [200, "b"], text);
    }
  }
  assert.ok((await metric(router.url, 'svc_router_retries_total{engine="a"}')) > 0);
});

void test("a full engine costs one retry without opening its circuit, and where all are full the client gets the engine's own answer", async () => {
  await using a = await startEngine("a");
  await using b = await startEngine("b");
  await using router = await openRouter([a, b], ["--router.circuit_failures=1"]);
  await a.fault("429");
  for (let at = 0; at < 8; at++) {
    const { status, headers, text } = await post(router.url, "/v1/chat/completions", chat(`full ${at}`));
    assert.deepEqual([status, headers.get("x-svc-instance")], [200, "b"], text);
  }
  assert.ok((await metric(router.url, 'svc_router_retries_total{engine="a"}')) > 0);
  await fit(router.url, ["a", "b"]);
  await b.fault("429");
  const { status, json } = await post(router.url, "/v1/chat/completions", chat("full everywhere"));
  assert.deepEqual([status, json.error.message], [429, "the engine is full"]);
});

void test("where all engines fail, the error has a code, and no third engine is tried", async () => {
  await using a = await startEngine("a");
  await using b = await startEngine("b");
  await using c = await startEngine("c");
  await using router = await openRouter([a, b, c], ["--router.circuit_failures=1000"]);
  await Promise.all([a, b, c].map((engine) => engine.fault("garbage")));
  const { status, json, text } = await post(router.url, "/v1/chat/completions", chat("hello"));
  assert.deepEqual([status, json.error.code, json.error.type], [502, "engine_failed", "server_error"], text);
  const requests = await Promise.all([a, b, c].map(async (engine) => (await engine.seen()).requests));
  assert.equal(
    requests.reduce((sum, one) => sum + one, 0),
    2,
  );
});

void test("half a stream ends with an error event, in each API's own form", async () => {
  await using a = await startEngine("a");
  await using router = await openRouter([a]);
  await a.fault("half");
  const openai = await post(router.url, "/v1/chat/completions", stream("hello"));
  assert.equal(openai.status, 200);
  assert.match(openai.text, /\n\ndata: \{"type":"error","error":\{.*"code":"engine_failed"\}\}\n\n$/);
  const anthropic = await post(router.url, "/v1/messages", stream("hello"));
  assert.match(anthropic.text, /\n\nevent: error\ndata: \{"type":"error","error":\{.*"code":"engine_failed"\}\}\n\n$/);
});

void test("an engine that never answers is given up after its deadline, without a second engine", async () => {
  await using a = await startEngine("a");
  await using router = await openRouter([a], ["--router.first_byte_seconds=1"]);
  await a.fault("never");
  const { status, json } = await post(router.url, "/v1/chat/completions", chat("hello"));
  assert.deepEqual([status, json.error.code], [504, "engine_timeout"]);
  await until(
    "the engine's request is cancelled",
    async () => (await a.seen()).cancelled,
    (seen) => seen === 1,
  );
});

void test("an engine that takes connections and says nothing does not keep the router from starting", async () => {
  await using a = await startEngine("a");
  await using silent = await openSilent();
  await using router = await openRouter([a, { name: "silent", url: silent.url }], ["--router.circuit_failures=1", "--router.tokens_timeout_ms=200"]);
  await fit(router.url, ["a"]);
  assert.equal((await post(router.url, "/v1/chat/completions", chat("hello"))).headers.get("x-svc-instance"), "a");
});

void test("a client that leaves ends its request on the engine, before and within its answer", async () => {
  await using a = await startEngine("a", ["--token-ms", "50"]);
  await using router = await openRouter([a]);
  for (const [round, mode] of ["never", "none"].entries()) {
    await a.fault(mode);
    const leaving = new AbortController();
    const asking = fetch(`${router.url}/v1/chat/completions`, {
      method: "POST",
      body: JSON.stringify(stream("hello", { max_tokens: 10_000 })),
      signal: leaving.signal,
    });
    asking.catch(() => {});
    await until(
      "the engine has it",
      () => a.seen(),
      ({ running, waiting }) => (mode === "never" ? waiting : running) === 1,
    );
    if (mode === "none") await asking;
    leaving.abort();
    await until(
      "it is cancelled",
      async () => (await a.seen()).cancelled,
      (seen) => seen === round + 1,
    );
  }
  await until(
    "nothing is in flight",
    () => metric(router.url, 'svc_router_engine_in_flight{engine="a"}'),
    (seen) => seen === 0,
  );
});

void test("a client that reads slowly gets the whole answer, while the engine waits and the router holds little of it", async () => {
  await using a = await startEngine("a", ["--token-ms", "0"]);
  await using router = await openRouter([a]);
  const body = JSON.stringify(stream("hello", { max_tokens: 3_000 }));
  const { hostname, port } = new URL(router.url);
  const socket = connect(Number(port), hostname);
  socket.write(`POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  let text = "";
  for await (const chunk of socket as AsyncIterable<Buffer>) {
    text += chunk.toString();
    await delay(1);
  }
  assert.match(text, /data: \[DONE\]/);
  assert.equal(text.match(/chat\.completion\.chunk/g)?.length, 3_000);
});

void test("without any engine the answer is 503 with Retry-After, and so is the router's health", async () => {
  await using a = await startEngine("a");
  await using router = await openRouter([a]);
  await a.kill();
  await fit(router.url, []);
  const { status, json, headers } = await post(router.url, "/v1/chat/completions", chat("hello"));
  assert.deepEqual([status, json.error.code, headers.get("retry-after")], [503, "no_engine", "1"]);
  assert.equal((await fetch(`${router.url}/health`)).status, 503);
  assert.equal((await fetch(`${router.url}/v1/models`)).status, 503);
});
