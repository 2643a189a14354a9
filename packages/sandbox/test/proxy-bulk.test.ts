// Large bodies through the proxy: they pass unchanged, and backpressure reaches the sender.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { bulkServer, digestOf, exchangeBulk } from "./proxy-bulk.ts";
import { openFixture } from "./proxy-fixture.ts";

const MiB = 1024 * 1024;
/** The bytes that two hops' kernel buffers may take in addition to the proxy's own bound. */
const stalledBytes = 48 * MiB;

void test("a large body passes unchanged both ways, chunked or not", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const total = 64 * MiB;
  const { port } = await fixture.serve(sandbox.host, 0, bulkServer(total));
  const digest = digestOf(total);
  for (const chunked of [false, true]) {
    const seen = await exchangeBulk(fixture.port, total, chunked, { "e2b-sandbox-id": sandbox.sandboxID, "e2b-sandbox-port": String(port) });
    assert.deepEqual(seen, { up: digest, down: digest });
  }
});

/** Waits until a count stops changing. */
async function standstill(count: () => number): Promise<number> {
  for (let before = -1; ; before = count()) {
    await sleep(500);
    if (count() === before && before > 0) return before;
  }
}

void test("a client that does not read slows the sandbox's server down, and loses nothing", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const total = 192 * MiB;
  let sent = 0;
  const port = await fixture.serveRaw(sandbox.host, 0, (socket) => {
    const piece = Buffer.alloc(MiB);
    const send = () => {
      while (sent < total) {
        sent += piece.length;
        if (!socket.write(piece)) return;
      }
    };
    socket.once("data", () => {
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${total}\r\n\r\n`);
      send();
    });
    socket.on("drain", send);
  });
  using client = fixture.dial();
  client.socket.pause();
  client.send(`GET / HTTP/1.1\r\nHost: ${port}-${sandbox.sandboxID}.localhost\r\n\r\n`);
  assert.ok((await standstill(() => sent)) < stalledBytes);
  let received = 0;
  client.socket
    .removeAllListeners("data")
    .setEncoding("latin1")
    .on("data", (text: string) => (received += text.length));
  client.socket.resume();
  while (received < total) await sleep(10);
  assert.equal(sent, total);
});

void test("a server that does not read slows the client down, and loses nothing", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const total = 192 * MiB;
  let sent = 0;
  let resume = () => {};
  let received = 0;
  const port = await fixture.serveRaw(sandbox.host, 0, (socket) => {
    socket.pause().on("data", (bytes) => (received += bytes.length));
    resume = () => socket.resume();
  });
  using client = fixture.dial();
  const piece = Buffer.alloc(MiB);
  const send = () => {
    while (sent < total) {
      sent += piece.length;
      if (!client.socket.write(piece)) return;
    }
  };
  client.socket.on("drain", send);
  client.send(`POST / HTTP/1.1\r\nHost: ${port}-${sandbox.sandboxID}.localhost\r\nContent-Length: ${total}\r\n\r\n`);
  send();
  assert.ok((await standstill(() => sent)) < stalledBytes);
  resume();
  while (received < total) await sleep(10);
  assert.equal(sent, total);
});

void test("many large bodies at once on few connections do not mix", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const total = 3 * MiB + 17;
  const { port } = await fixture.serve(sandbox.host, 0, bulkServer(total));
  const digest = digestOf(total);
  const routing = { "x-svc-sandbox-id": sandbox.sandboxID, "x-svc-target-port": String(port) };
  const oneAfterAnother = async (chunked: boolean) => {
    for (let time = 0; time < 5; time++) assert.deepEqual(await exchangeBulk(fixture.port, total, chunked, routing), { up: digest, down: digest });
  };
  await Promise.all(Array.from({ length: 8 }, (_, index) => oneAfterAnother(index % 2 === 0)));
});

void test("a client that pipelines requests and reads no answer is answered within a bound", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const body = Buffer.alloc(200_000);
  const count = 1000;
  let served = 0;
  const { port } = await fixture.serve(sandbox.host, 0, (_, response) => {
    served++;
    response.end(body);
  });
  using client = fixture.dial();
  client.socket.pause();
  client.send(`GET / HTTP/1.1\r\nHost: ${port}-${sandbox.sandboxID}.localhost\r\n\r\n`.repeat(count));
  assert.ok((await standstill(() => served)) * body.length < stalledBytes);
  let received = 0;
  client.socket
    .removeAllListeners("data")
    .setEncoding("latin1")
    .on("data", (text: string) => (received += text.length));
  client.socket.resume();
  while (received < count * body.length) await sleep(10);
  assert.equal(served, count);
});
