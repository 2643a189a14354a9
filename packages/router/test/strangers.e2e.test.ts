// Clients that do what nobody expects: none of it may cost others their engines, or the router its memory.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { chat, heard, metric, openIndexer, openRouter, post, startEngine, until } from "./stack.ts";

/** Sends these bytes and reads the whole answer; the server ends the connection. */
function raw(url: string, text: string): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    let answer = "";
    const socket = connect(Number(port), hostname, () => socket.write(text));
    socket.on("data", (chunk: Buffer) => void (answer += chunk.toString()));
    socket.once("close", () => resolve(answer));
    socket.once("error", reject);
  });
}

void test("a client of HTTP/1.0, such as nginx by default, gets streams and whole answers", async () => {
  await using a = await startEngine("a");
  await using router = await openRouter([a], ["--router.circuit_failures=1"]);
  for (const [more, wanted] of [
    [{ stream: true }, /^HTTP\/1\.\d 200 [\s\S]*data: \[DONE\]\n\n$/],
    [{}, /^HTTP\/1\.\d 200 [\s\S]*"choices"/],
  ] as const) {
    const body = JSON.stringify(chat("hello", more));
    const head = `POST /v1/chat/completions HTTP/1.0\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n`;
    assert.match(await raw(router.url, head + body), wanted);
  }
  const head = await fetch(`${router.url}/seen`, { method: "HEAD" });
  assert.notEqual(head.status, 502);
  assert.equal((await post(router.url, "/v1/chat/completions", chat("x"))).status, 200);
});

void test("a client that stops reading loses its stream, and the engine is not blamed", async () => {
  await using a = await startEngine("a", ["--token-ms", "0"]);
  await using router = await openRouter([a], ["--router.circuit_failures=1", "--router.first_byte_seconds=1"]);
  const body = JSON.stringify(chat("count", { stream: true, max_tokens: 2_000_000 }));
  const { hostname, port } = new URL(router.url);
  const socket = connect(Number(port), hostname);
  socket.on("error", () => {});
  socket.pause();
  socket.write(`POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  await until(
    "the engine was told",
    () => a.seen(),
    ({ cancelled }) => cancelled === 1,
  );
  assert.equal(await metric(router.url, 'svc_router_engine_fit{engine="a"}'), 1);
  assert.equal((await post(router.url, "/v1/chat/completions", chat("x"))).status, 200);
  await until(
    "nothing is held",
    () => metric(router.url, 'svc_router_engine_in_flight{engine="a"}'),
    (count) => count === 0,
  );
  socket.destroy();
});

void test("a request that the indexer refuses costs no other one the indexer's answer", async () => {
  await using indexer = await openIndexer();
  await using a = await startEngine("a", ["--indexer", indexer.url]);
  await heard(indexer.url, ["a"]);
  await using router = await openRouter([a], [`--indexer=${indexer.url}`, "--router.speculative_seconds=0"]);
  const content = "a prompt of more than one block of sixteen tokens, so that there is something to find";
  const expected = async () => Number((await post(router.url, "/v1/chat/completions", chat(content))).headers.get("x-svc-expected-cached-tokens"));
  await until("the indexer knows it", expected, (tokens) => tokens > 0);
  for (const cache_salt of ["x".repeat(1_100), "x".repeat(100_000), "é".repeat(1_000)]) {
    assert.equal((await post(router.url, "/v1/chat/completions", chat(content, { cache_salt }))).status, 200);
    assert.ok((await expected()) > 0, "the next one is still expected right");
  }
});

void test("nonsense that is JSON is the engine's to judge, and large names are neither kept nor repeated", async () => {
  await using a = await startEngine("a");
  await using router = await openRouter([a], ["--router.max_body_bytes=8000000"]);
  const deep = `{"model": "demo", "messages": ${"[".repeat(200_000)}${"]".repeat(200_000)}}`;
  const nested = await post(router.url, "/v1/chat/completions", deep);
  assert.notEqual(nested.status, 500, nested.text.slice(0, 300));
  const named = await post(router.url, "/v1/chat/completions", { ...chat("x"), model: "m".repeat(1_000_000) });
  assert.deepEqual([named.status, named.json.error.code], [404, "model_not_found"]);
  assert.ok(named.text.length < 1_000);
  for (let turn = 0; turn < 3; turn++)
    assert.equal((await post(router.url, "/v1/chat/completions", chat("x", { user: "u".repeat(1_000_000) + turn }))).status, 200);
  assert.equal(await metric(router.url, "svc_router_held_bytes"), 0);
});

void test("garbage on the wire ends its own connection alone", async () => {
  await using a = await startEngine("a");
  await using router = await openRouter([a]);
  const garbage = [
    "\u0000\u0001\u0002\r\n\r\n",
    "GET / HTTP/9.9\r\n\r\n",
    "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
    `GET /${"x".repeat(100_000)} HTTP/1.1\r\nhost: x\r\n\r\n`,
    "CONNECT example.com:443 HTTP/1.1\r\nhost: example.com\r\n\r\n",
    "POST http://example.com/v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}",
  ];
  for (const text of garbage) {
    const answer = await raw(router.url, text);
    assert.ok(answer === "" || /^HTTP\/1\.1 4\d\d /.test(answer), `${JSON.stringify(text.slice(0, 60))}: ${answer.slice(0, 200)}`);
  }
  // Half a body whose client leaves.
  const { hostname, port } = new URL(router.url);
  for (let at = 0; at < 20; at++) {
    const socket = connect(Number(port), hostname, () => {
      socket.write("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{");
      setTimeout(() => socket.destroy(), 20);
    });
    socket.on("error", () => {});
  }
  await delay(100);
  await until(
    "no body is held",
    () => metric(router.url, "svc_router_held_bytes"),
    (bytes) => bytes === 0,
  );
  assert.equal((await post(router.url, "/v1/chat/completions", chat("x"))).status, 200);
});
