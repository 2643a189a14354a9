// Streams and connections whose sandbox is paused or killed, resumes, or leaves its address to another sandbox.
import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { WebSocket, WebSocketServer } from "ws";
import { bodyOf, type Fixture, openFixture } from "./proxy-fixture.ts";

const hostLine = (port: number, sandboxID: string) => `Host: ${port}-${sandboxID}.localhost\r\n`;

/** Opens a stream at a raw server that answers `text`, ends its sandbox, and returns how the client's connection ended. */
async function cutOff(fixture: Fixture, how: "pause" | "kill", text: string, lines = "") {
  const sandbox = fixture.sandbox();
  const port = await fixture.serveRaw(sandbox.host, 0, (socket) => socket.once("data", () => socket.write(text, "latin1")));
  using client = fixture.dial();
  let error: NodeJS.ErrnoException | undefined;
  client.socket.on("error", (problem) => (error = problem));
  client.send(`GET / HTTP/1.1\r\n${hostLine(port, sandbox.sandboxID)}${lines}\r\n`);
  await client.until((received) => received.endsWith("begun"));
  if (how === "pause") fixture.sleep(sandbox);
  else fixture.kill(sandbox.sandboxID);
  const received = await client.until((_, closed) => closed);
  return { received, code: error?.code };
}

for (const how of ["pause", "kill"] as const) {
  void test(`a response that has begun is cut off by a ${how} such that its client notices`, async () => {
    await using fixture = await openFixture();
    const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun";
    assert.deepEqual(await cutOff(fixture, how, chunked), { received: chunked, code: undefined }, "chunked: no last chunk");
    const counted = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun";
    assert.deepEqual(await cutOff(fixture, how, counted), { received: counted, code: undefined }, "counted: fewer bytes");
    assert.equal((await cutOff(fixture, how, "HTTP/1.0 200 OK\r\n\r\nbegun")).code, "ECONNRESET", "ended by its connection: a reset");
    const switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\nbegun";
    assert.equal((await cutOff(fixture, how, switched, "Connection: Upgrade\r\nUpgrade: raw\r\n")).code, "ECONNRESET", "another protocol: a reset");
    assert.deepEqual(fixture.waking.calls, [], "a stream that was cut off wakes nothing");
  });
}

void test("fetch fails on a stream whose sandbox is paused, after everything that the sandbox sent", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const { port } = await fixture.serve(sandbox.host, 0, (_, response) => response.write("x".repeat(100_000)));
  const headers = { "x-svc-sandbox-id": sandbox.sandboxID, "x-svc-target-port": String(port) };
  const response = await fetch(`http://127.0.0.1:${fixture.port}/`, { headers });
  let bytes = 0;
  const read = async () => {
    for await (const piece of response.body as unknown as AsyncIterable<Uint8Array>) {
      bytes += piece.length;
      if (bytes === 100_000) fixture.sleep(sandbox);
    }
  };
  await assert.rejects(read, /terminated/);
  assert.equal(bytes, 100_000);
});

void test("a WebSocket closes abnormally when its sandbox is paused", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const { server, port } = await fixture.serve(sandbox.host, 0, () => {});
  new WebSocketServer({ server });
  const socket = new WebSocket(`ws://127.0.0.1:${fixture.port}/`, { headers: { host: `${port}-${sandbox.sandboxID}.localhost` } });
  await new Promise((resolve) => socket.on("open", resolve));
  const closed = new Promise((resolve) => socket.on("error", () => {}).on("close", resolve));
  fixture.sleep(sandbox);
  assert.equal(await closed, 1006);
});

void test("a request of which a byte was passed on is answered 502 at a pause, and its connection serves the next one", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const arrived = Promise.withResolvers<void>();
  const { port } = await fixture.serve(sandbox.host, 0, (request, response) => {
    if (request.url === "/next") response.end("woken");
    else arrived.resolve();
  });
  const line = hostLine(port, sandbox.sandboxID);
  using client = fixture.dial();
  client.send(`GET /held HTTP/1.1\r\n${line}\r\nGET /next HTTP/1.1\r\n${line}\r\n`);
  await arrived.promise;
  fixture.sleep(sandbox);
  const received = await client.until((text) => text.endsWith("woken"));
  const first = received.slice(0, received.indexOf("HTTP/1.1 200"));
  assert.match(first, /^HTTP\/1\.1 502 [\s\S]*x-svc-reason: cut_off\r\nShould-Retry: false/);
  const message =
    "The sandbox was paused before it answered this request, which may have been carried out; if it may run twice, send it again: the next request resumes the sandbox";
  assert.deepEqual(bodyOf(first), { sandboxId: sandbox.sandboxID, message, code: 502 });
  assert.equal(fixture.waking.calls.length, 1);
});

void test("a request cut off by a pause gets an answer that its sandbox was paused and what to do, and one whose sandbox was killed that it was not found", async () => {
  for (const how of ["pause", "kill"] as const) {
    await using fixture = await openFixture();
    const sandbox = fixture.sandbox();
    const arrived = Promise.withResolvers<void>();
    const { port } = await fixture.serve(sandbox.host, 0, () => arrived.resolve());
    const asked = fixture.raw(`GET / HTTP/1.1\r\n${hostLine(port, sandbox.sandboxID)}Connection: close\r\n\r\n`);
    await arrived.promise;
    if (how === "pause") fixture.pauseWithoutWake(sandbox.sandboxID);
    else fixture.kill(sandbox.sandboxID);
    const answered = await asked;
    if (how === "kill") assert.match(answered, /^HTTP\/1\.1 502 [\s\S]*x-svc-reason: not_found[\s\S]*"The sandbox was not found"/);
    else {
      assert.match(answered, /^HTTP\/1\.1 502 [\s\S]*x-svc-reason: cut_off[\s\S]*was paused before it answered.*; connect to the sandbox or resume it/);
      assert.doesNotMatch(answered, /was not found|port is not open/);
    }
  }
});

void test("a request of which nothing was passed on waits until its sandbox runs again; one whose sandbox is killed is answered 502", async () => {
  for (const how of ["pause", "kill"] as const) {
    await using fixture = await openFixture();
    const sandbox = fixture.sandbox();
    // The port listens only on the sandbox's loopback, and envd does not answer the request for its relay yet.
    const asked = Promise.withResolvers<void>();
    let relayed = "";
    let relays = false;
    await fixture.serveRaw(sandbox.host, 49983, (socket) => {
      socket.once("data", () => {
        if (!relays) return asked.resolve();
        socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: svc-relay\r\n\r\n");
        socket.on("data", (bytes) => {
          relayed += bytes.toString("latin1");
          if (relayed.endsWith("whole") || relayed.includes("GET /behind")) socket.write("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npassed");
        });
      });
    });
    using client = fixture.dial();
    const line = hostLine(8080, sandbox.sandboxID);
    const beginning = "the ".repeat(5_000);
    client.send(`POST /kept HTTP/1.1\r\n${line}Content-Length: ${beginning.length + 5}\r\n\r\n${beginning}`);
    await asked.promise;
    client.send("whole");
    relays = true;
    if (how === "pause") fixture.sleep(sandbox);
    else fixture.kill(sandbox.sandboxID);
    const received = await client.until((text) => /passed$|\}$/.test(text));
    client.send(`GET /behind HTTP/1.1\r\n${line}\r\n`);
    await client.until((text) => text.length > received.length);
    if (how === "kill") assert.match(received, /^HTTP\/1\.1 502 [\s\S]*"The sandbox was not found"/);
    else {
      assert.match(received, /^HTTP\/1\.1 200 OK\r\n/);
      assert.match(relayed, /^POST \/kept HTTP\/1\.1\r\n/);
      assert.equal(relayed.slice(relayed.indexOf("\r\n\r\n") + 4, relayed.indexOf("GET /behind")), `${beginning}whole`);
    }
    assert.equal(fixture.waking.calls.length, how === "pause" ? 1 : 0);
  }
});

void test("the connection of a client that waits for 100 Continue is closed when its sandbox is killed before", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const arrived = Promise.withResolvers<void>();
  const port = await fixture.serveRaw(sandbox.host, 0, (socket) => socket.once("data", () => arrived.resolve()));
  using client = fixture.dial();
  client.send(`PUT / HTTP/1.1\r\n${hostLine(port, sandbox.sandboxID)}Expect: 100-continue\r\nContent-Length: 3\r\n\r\n`);
  await arrived.promise;
  fixture.kill(sandbox.sandboxID);
  assert.match(await client.until((_, closed) => closed), /^HTTP\/1\.1 502 [\s\S]*Connection: close\r\n/);
});

void test("a request that waits is answered 502 when its sandbox is killed", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  fixture.waking.meanwhile = async (sandboxID) => fixture.kill(sandboxID);
  fixture.sleep(sandbox);
  const received = await fixture.raw(`GET / HTTP/1.1\r\n${hostLine(8080, sandbox.sandboxID)}Connection: close\r\n\r\n`);
  assert.match(received, /^HTTP\/1\.1 502 [\s\S]*"The sandbox was not found"/);
});

/** Starts a server that answers with the token it got, and counts its connections. */
async function openCounting(fixture: Fixture, host: string, port: number) {
  const sockets = new Set<Socket>();
  let accepted = 0;
  const { server, port: bound } = await fixture.serve(host, port, (request, response) => response.end(`${request.headers["x-access-token"] ?? "none"}.`));
  server.keepAliveTimeout = 60_000;
  server.on("connection", (socket) => {
    accepted++;
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  return {
    port: bound,
    get accepted() {
      return accepted;
    },
    /** Waits until no connection is left. */
    async emptied(): Promise<void> {
      while (sockets.size > 0) await sleep(5);
    },
  };
}

void test("kept connections end with a pause, and a resumed sandbox gets new ones even at its old address", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const server = await openCounting(fixture, sandbox.host, 0);
  const ask = () => fixture.raw(`GET / HTTP/1.1\r\n${hostLine(server.port, sandbox.sandboxID)}Connection: close\r\n\r\n`);
  await ask();
  await ask();
  assert.equal(server.accepted, 1);
  fixture.sleep(sandbox);
  await server.emptied();
  assert.match(await ask(), /none\.$/);
  assert.equal(server.accepted, 2);
  // The node may resume a sandbox without notifying the proxy: another process at the same address is another run.
  fixture.entries.set(sandbox.sandboxID, { ...sandbox, handle: { ...sandbox.handle, pid: 2, pidStartTicks: 2 } });
  await ask();
  assert.equal(server.accepted, 3);
});

void test("a sandbox at the address of one that was paused gets neither its connections nor its tokens", async () => {
  await using fixture = await openFixture();
  const first = fixture.sandbox();
  const server = await openCounting(fixture, first.host, 49983);
  const ask = (sandbox: typeof first) =>
    fixture.raw(`GET /health HTTP/1.1\r\n${hostLine(49983, sandbox.sandboxID)}X-Access-Token: ${sandbox.envdAccessToken}\r\nConnection: close\r\n\r\n`);
  assert.ok((await ask(first)).endsWith(`${first.envdAccessToken}.`));
  const elsewhere = fixture.sandbox();
  fixture.entries.delete(elsewhere.sandboxID);
  fixture.sleep({ ...first, handle: elsewhere.handle });
  await server.emptied();
  const second = fixture.sandbox();
  const entry = { ...second, handle: { ...second.handle, endpoint: first.handle.endpoint } };
  fixture.entries.set(second.sandboxID, entry);
  assert.ok((await ask(second)).endsWith(`${second.envdAccessToken}.`));
  assert.equal(server.accepted, 2);
  // The first sandbox wakes at a new address.
  const moved = await openCounting(fixture, elsewhere.host, 49983);
  assert.ok((await ask(first)).endsWith(`${first.envdAccessToken}.`));
  assert.ok((await ask(second)).endsWith(`${second.envdAccessToken}.`));
  assert.deepEqual([server.accepted, moved.accepted], [2, 1]);
  const crossed = await fixture.raw(
    `GET /health HTTP/1.1\r\n${hostLine(49983, second.sandboxID)}X-Access-Token: ${first.envdAccessToken}\r\nConnection: close\r\n\r\n`,
  );
  assert.match(crossed, /^HTTP\/1\.1 401 /);
});
