// Tests the HTTP server itself: requests in pieces, in chunks, pipelined on one connection, and a clean stop.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { startIndexer, type TestIndexer } from "./indexer.ts";

/** Sends these pieces one after the other, and returns everything that comes back until the server ends the connection. */
async function talk(indexer: TestIndexer, pieces: readonly string[]): Promise<string> {
  const socket = connect(Number(new URL(indexer.url).port), "127.0.0.1");
  let answer = "";
  socket.setEncoding("latin1").on("data", (text) => {
    answer += text;
  });
  const ended = new Promise((resolve) => socket.once("close", resolve));
  for (const piece of pieces) {
    socket.write(piece, "latin1");
    await delay(5);
  }
  await ended;
  return answer;
}

const body = '{"model":"m","block_size":2,"token_ids":[1,2],"instance_id":"x"}';
const row = '{"default":{"x":{"longest_matched":0,"GPU":0,"CPU":0,"DISK":0,"DP":{}}}}';
const post = (more: string, content: string) => `POST /query HTTP/1.1\r\nHost: x\r\n${more}\r\n${content}`;
const answers = (text: string) => text.split(row).length - 1;

void test("a browser at the URL gets a page that describes the server and each of its routes", async () => {
  await using indexer = await startIndexer();
  const page = await fetch(indexer.url);
  assert.deepEqual([page.status, page.headers.get("content-type")], [200, "text/html; charset=utf-8"]);
  const text = await page.text();
  assert.match(text, /<h1>svc indexer<\/h1>/);
  const api = [...text.matchAll(/<tr><td><code>([A-Z]+ \/[^<]*)<\/code><\/td><td>([^<]*)<\/td>/g)].map(([, route, does]) => [route, does !== ""]);
  assert.ok(api.length >= 11, text);
  assert.deepEqual(
    api.filter(([, isSaid]) => !isSaid),
    [],
  );
});

void test("a request may come byte by byte, in chunks, followed by others, or ask before it sends its body", async () => {
  await using indexer = await startIndexer();
  const whole = post(`Content-Length: ${body.length}\r\nConnection: close\r\n`, body);
  assert.equal(answers(await talk(indexer, [...whole])), 1);
  const chunked = post(
    "Transfer-Encoding: chunked\r\nConnection: close\r\n",
    `5\r\n${body.slice(0, 5)}\r\n${(body.length - 5).toString(16)}\r\n${body.slice(5)}\r\n0\r\n\r\n`,
  );
  assert.equal(answers(await talk(indexer, [chunked])), 1);
  assert.equal(answers(await talk(indexer, [chunked.slice(0, 90), chunked.slice(90, 120), chunked.slice(120)])), 1);
  const kept = post(`Content-Length: ${body.length}\r\n`, body);
  assert.equal(answers(await talk(indexer, [kept + kept + whole])), 3);
  // A slow answer delays the answers after it, in order.
  const behind = await talk(indexer, [`GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n${kept}${whole}`]);
  assert.equal(answers(behind), 2);
  assert.ok(behind.indexOf("svc_indexer_blocks") < behind.indexOf(row));
  const expecting = await talk(indexer, [post(`Content-Length: ${body.length}\r\nExpect: 100-continue\r\nConnection: close\r\n`, ""), body]);
  assert.match(expecting, /^HTTP\/1.1 100 Continue\r\n\r\nHTTP\/1.1 200 OK\r\n/);
});

void test("a request that two servers could read differently is refused, and the connection ends", async () => {
  await using indexer = await startIndexer();
  for (const framing of ["Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "Content-Length: 2\r\nContent-Length: 3\r\n", "Content-Length: +2\r\n"])
    assert.match(await talk(indexer, [post(framing, "{}")]), /^HTTP\/1.1 400 /, framing);
  assert.match(await talk(indexer, [post("Transfer-Encoding: chunked\r\n", "zz\r\n")]), /^HTTP\/1.1 400 /);
});

void test("a body that is too large is refused with 413, and its client can send it completely and then read the reason", async () => {
  await using indexer = await startIndexer(["--indexer.max_body_bytes=65536"]);
  for (const size of [1 << 20, 32 << 20])
    for (const framing of [`Content-Length: ${size}`, "Transfer-Encoding: chunked"]) {
      const socket = connect({ port: Number(new URL(indexer.url).port), host: "127.0.0.1", allowHalfOpen: true });
      let said = "";
      socket.setEncoding("latin1").on("data", (text) => {
        said += text;
      });
      const closed = new Promise<Error | undefined>((resolve) => socket.once("error", resolve).once("close", () => resolve(undefined)));
      const content = framing.startsWith("C") ? "x".repeat(size) : `${size.toString(16)}\r\n${"x".repeat(size)}\r\n0\r\n\r\n`;
      socket.write(post(`${framing}\r\n`, content), "latin1", (error) => {
        assert.equal(error ?? undefined, undefined, `${framing} of ${size}`);
        socket.end();
      });
      assert.equal(await closed, undefined, `${framing} of ${size}`);
      assert.match(said, /^HTTP\/1\.1 413 [\s\S]*"reason":"too_large"/);
    }
});

void test("a second indexer on one home is refused with the number of the process that runs the first", async () => {
  await using indexer = await startIndexer();
  await assert.rejects(startIndexer([], { home: indexer.home }), new RegExp(`process ${indexer.pid} already runs svc indexer on `));
});

void test("SIGTERM ends the indexer within its bound with code 0, and leaves a snapshot", async () => {
  await using indexer = await startIndexer();
  await indexer.register({
    endpoint: "tcp://127.0.0.1:9",
    replay_endpoint: "tcp://127.0.0.1:10",
    type: "vllm",
    modelname: "m",
    instance_id: "e",
    block_size: 2,
    dp_rank: 0,
  });
  const before = performance.now();
  await indexer.kill("SIGTERM");
  assert.ok(performance.now() - before < 10_000);
  await indexer.start();
  assert.equal((await indexer.services()).length, 1);
});
