// Requests for sleeping sandboxes: they wait until the sandbox has resumed, and then pass unchanged.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import type { RequestListener } from "node:http";
import { test } from "node:test";
import { setImmediate as tick } from "node:timers/promises";
import { WebSocket, WebSocketServer } from "ws";
import { type Fixture, openFixture } from "./proxy-fixture.ts";

const hostLine = (port: number, sandboxID: string) => `Host: ${port}-${sandboxID}.localhost\r\n`;

/** Answers with a description of the request. */
const mirror: RequestListener = async (request, response) => {
  const hash = createHash("sha256");
  let bytes = 0;
  for await (const piece of request) {
    hash.update(piece);
    bytes += piece.length;
  }
  response.end(JSON.stringify({ method: request.method, url: request.url, headers: request.headers, bytes, digest: hash.digest("hex") }));
};

/** Opens a sleeping sandbox with an application that mirrors requests, and a function that completes its wake. */
async function openSleeper(fixture: Fixture) {
  const sandbox = fixture.sandbox();
  const { port } = await fixture.serve(sandbox.host, 0, mirror);
  const woken = Promise.withResolvers<void>();
  const others = fixture.waking.meanwhile;
  fixture.waking.meanwhile = (id) => (id === sandbox.sandboxID ? woken.promise : others(id));
  fixture.sleep(sandbox);
  return { ...sandbox, port, line: hostLine(port, sandbox.sandboxID), wake: woken.resolve };
}

async function waitingIs(fixture: Fixture, count: number): Promise<void> {
  while (!(await fixture.metrics.text()).includes(`svc_proxy_waiting ${count}\n`)) await new Promise((resolve) => setTimeout(resolve, 5));
}

void test("a request wakes its sandbox and arrives with its method, path, headers and body", async () => {
  await using fixture = await openFixture();
  const sandbox = await openSleeper(fixture);
  using client = fixture.dial();
  client.send(`PATCH /a?b=c HTTP/1.1\r\n${sandbox.line}X-Own: 1\r\nContent-Length: 5\r\n\r\nhello`);
  await waitingIs(fixture, 1);
  assert.equal(client.received, "");
  sandbox.wake();
  const answered = JSON.parse((await client.until((received) => received.endsWith("}"))).split("\r\n\r\n")[1] as string);
  assert.deepEqual([answered.method, answered.url, answered.headers["x-own"], answered.bytes], ["PATCH", "/a?b=c", "1", 5]);
  assert.equal(answered.digest, createHash("sha256").update("hello").digest("hex"));
  assert.deepEqual(fixture.waking.calls, [{ sandboxID: sandbox.sandboxID, client: "127.0.0.1" }]);
  await waitingIs(fixture, 0);
  assert.match(await fixture.metrics.text(), /svc_proxy_wakes_total\{outcome="resumed"\} 1/);
});

void test("hundreds of requests for sleeping sandboxes wake each sandbox once", async () => {
  await using fixture = await openFixture();
  const one = await openSleeper(fixture);
  const other = await openSleeper(fixture);
  const clients = Array.from({ length: 600 }, (_, index) => {
    const client = fixture.dial();
    client.send(`GET /${index} HTTP/1.1\r\n${(index % 2 === 0 ? one : other).line}Connection: close\r\n\r\n`);
    return client;
  });
  await waitingIs(fixture, 600);
  one.wake();
  other.wake();
  for (const [index, client] of clients.entries()) {
    assert.match(await client.until((_, closed) => closed), new RegExp(`^HTTP/1\\.1 200 OK[\\s\\S]*"url":"/${index}"`));
  }
  assert.equal(fixture.waking.calls.length, 2);
});

void test("requests after a waiting one keep their order, whichever sandbox they address", async () => {
  await using fixture = await openFixture();
  const awake = fixture.sandbox();
  const { port } = await fixture.serve(awake.host, 0, (_, response) => response.end("awake"));
  const sandbox = await openSleeper(fixture);
  using client = fixture.dial();
  const toAwake = `GET / HTTP/1.1\r\n${hostLine(port, awake.sandboxID)}\r\n`;
  client.send(`${toAwake}POST /second HTTP/1.1\r\n${sandbox.line}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n`);
  await client.until((received) => received.endsWith("awake"));
  await waitingIs(fixture, 1);
  client.send(`2\r\nde\r\n0\r\n\r\nGET /third HTTP/1.1\r\n${sandbox.line}\r\n${toAwake}`);
  for (let ticks = 0; ticks < 20; ticks++) await tick();
  sandbox.wake();
  const received = await client.until((text) => text.match(/awake/g)?.length === 2);
  const answers = received.split(/(?=HTTP\/1\.1 )/);
  assert.equal(answers.length, 4);
  assert.match(answers[1] as string, /"url":"\/second".*"bytes":5/);
  assert.match(answers[2] as string, /"url":"\/third"/);
});

void test("a client that waits for 100 Continue gets it from the woken sandbox", async () => {
  await using fixture = await openFixture();
  const sandbox = await openSleeper(fixture);
  using client = fixture.dial();
  client.send(`PUT /x HTTP/1.1\r\n${sandbox.line}Expect: 100-continue\r\nContent-Length: 3\r\n\r\n`);
  await waitingIs(fixture, 1);
  sandbox.wake();
  assert.equal(await client.until((received) => received.endsWith("\r\n\r\n")), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("abc");
  assert.match(await client.until((received) => received.endsWith("}")), /HTTP\/1\.1 200 OK[\s\S]*"bytes":3/);
});

void test("a WebSocket opens to a sandbox that slept", async () => {
  await using fixture = await openFixture();
  const sandbox = await openSleeper(fixture);
  const { server, port } = await fixture.serve(sandbox.host, 0, mirror);
  new WebSocketServer({ server }).on("connection", (socket) => socket.on("message", (data) => socket.send(`echo ${data}`)));
  const socket = new WebSocket(`ws://127.0.0.1:${fixture.port}/`, { headers: { host: `${port}-${sandbox.sandboxID}.localhost` } });
  await waitingIs(fixture, 1);
  sandbox.wake();
  await new Promise((resolve) => socket.on("open", resolve));
  const heard = new Promise((resolve) => socket.on("message", (data) => resolve(String(data))));
  socket.send("a");
  assert.equal(await heard, "echo a");
  socket.terminate();
});

void test("a large upload is not read beyond a bound while its sandbox wakes, and arrives completely", async () => {
  await using fixture = await openFixture();
  const sandbox = await openSleeper(fixture);
  const body = Buffer.alloc(16 * 1024 * 1024, "0123456789abcdef-");
  using client = fixture.dial();
  client.send(`POST /big HTTP/1.1\r\n${sandbox.line}Content-Length: ${body.length}\r\n\r\n`);
  client.send(body);
  await waitingIs(fixture, 1);
  // The proxy has reached its bound when the number of bytes read no longer grows.
  const bytesIn = async () => Number(/svc_proxy_bytes_total\{direction="in"\} (\d+)/.exec(await fixture.metrics.text())?.[1]);
  for (let before = -1, now = await bytesIn(); now !== before; ) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    before = now;
    now = await bytesIn();
  }
  assert.ok((await bytesIn()) <= 72 * 1024 + 64 * 1024, `it has read ${await bytesIn()} bytes`);
  sandbox.wake();
  const answered = JSON.parse((await client.until((received) => received.endsWith("}"))).split("\r\n\r\n")[1] as string);
  assert.deepEqual([answered.bytes, answered.digest], [body.length, createHash("sha256").update(body).digest("hex")]);
});

void test("a client that leaves while it waits is forgotten immediately, and its request arrives nowhere", async () => {
  await using fixture = await openFixture();
  const sandbox = await openSleeper(fixture);
  using leaving = fixture.dial();
  using ending = fixture.dial();
  using staying = fixture.dial();
  for (const [index, client] of [leaving, ending, staying].entries()) client.send(`GET /${index} HTTP/1.1\r\n${sandbox.line}\r\n`);
  await waitingIs(fixture, 3);
  leaving.socket.resetAndDestroy();
  await waitingIs(fixture, 2);
  ending.socket.end();
  await waitingIs(fixture, 1);
  sandbox.wake();
  assert.match(await staying.until((received) => received.endsWith("}")), /"url":"\/2"/);
  assert.match(await fixture.metrics.text(), /svc_proxy_request_seconds_count\{target="application",code="aborted"\} 2/);
  assert.match(await fixture.metrics.text(), /svc_proxy_request_seconds_count\{target="application",code="2xx"\} 1/);
});

void test("a sandbox that is paused again before its request reaches it is woken again, a bounded number of times", async () => {
  await using fixture = await openFixture();
  const sandbox = await openSleeper(fixture);
  sandbox.wake();
  let again = 2;
  // The pause happens after the wake's end, and before the request is routed again.
  fixture.waking.meanwhile = async () => {
    if (again-- > 0) void Promise.resolve().then(() => Promise.resolve().then(() => fixture.sleep(sandbox)));
  };
  const request = `GET /patient HTTP/1.1\r\n${sandbox.line}Connection: close\r\n\r\n`;
  assert.match(await fixture.raw(request), /"url":"\/patient"/);
  assert.equal(fixture.waking.calls.length, 3);
  again = Number.POSITIVE_INFINITY;
  fixture.sleep(sandbox);
  assert.match(await fixture.raw(request), /^HTTP\/1\.1 502 [\s\S]*paused again each time/);
});
