// Ends and special routes: dropped sandboxes, clients that leave, the relay to loopback-only servers, backpressure, closing.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { rmSync } from "node:fs";
import { createServer } from "node:http";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { proxyLimits } from "@svc/kit/proxy/limits.ts";
import { bodyOf, type Fixture, listening, openFixture } from "./proxy-fixture.ts";

const hostLine = (port: number, sandboxID: string) => `Host: ${port}-${sandboxID}.localhost\r\n`;

void test("dropping a sandbox answers waiting requests with 502 and cuts off streams that have begun", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const other = fixture.sandbox();
  let open = 0;
  const { port } = await fixture.serve(sandbox.host, 0, (request, response) => {
    open++;
    response.on("close", () => open--);
    if (request.url === "/stream") response.write("begun");
  });
  const { port: otherPort } = await fixture.serve(other.host, 0, (_, response) => response.end("other"));
  using waiting = fixture.dial();
  waiting.send(`POST /wait HTTP/1.1\r\n${hostLine(port, sandbox.sandboxID)}Content-Length: 10\r\n\r\nabc`);
  using stream = fixture.dial();
  stream.send(`GET /stream HTTP/1.1\r\n${hostLine(port, sandbox.sandboxID)}\r\n`);
  await stream.until((received) => received.includes("begun"));
  while (open < 2) await new Promise((resolve) => setTimeout(resolve, 5));
  fixture.entries.delete(sandbox.sandboxID);
  fixture.proxy.drop(sandbox.sandboxID);
  const answered = await waiting.until((received) => received.includes("}"));
  assert.match(answered, /^HTTP\/1\.1 502 [\s\S]*x-svc-reason: not_found/);
  assert.deepEqual(bodyOf(answered), { sandboxId: sandbox.sandboxID, message: "The sandbox was not found", code: 502 });
  await stream.until((_, closed) => closed);
  while (open > 0) await new Promise((resolve) => setTimeout(resolve, 5));
  // The same connection continues: first the rest of the refused body, then a request to another sandbox.
  waiting.send(`1234567GET / HTTP/1.1\r\n${hostLine(otherPort, other.sandboxID)}\r\n`);
  await waiting.until((received) => received.endsWith("other"));
});

void test("a connection whose body arrives after the answer continues, or its answer says that it closes", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const { port } = await fixture.serve(sandbox.host, 0, (request, response) => response.end(`answer ${request.url}`));
  const long = 2 * proxyLimits.discardBytes;
  for (const [framing, rest] of [
    ["Content-Length: 6", "cdef"],
    ["Transfer-Encoding: chunked", "4\r\ncdef\r\n0\r\n\r\n"],
  ]) {
    using client = fixture.dial();
    const begun = framing?.includes("chunked") ? "2\r\nab\r\n" : "ab";
    client.send(`POST /early HTTP/1.1\r\n${hostLine(port, sandbox.sandboxID)}${framing}\r\n\r\n${begun}`);
    assert.doesNotMatch(await client.until((received) => received.includes("answer /early")), /Connection: close/i);
    client.send(rest ?? "");
    client.send(`GET /next HTTP/1.1\r\n${hostLine(port, sandbox.sandboxID)}\r\n`);
    await client.until((received) => received.includes("answer /next"));
  }
  for (const lines of [`Content-Length: ${long}`, "Content-Length: 6\r\nExpect: 100-continue"]) {
    using client = fixture.dial();
    client.send(`POST /early HTTP/1.1\r\n${hostLine(port, sandbox.sandboxID)}${lines}\r\n\r\n`);
    assert.match(await client.until((received, closed) => closed && received.includes("answer /early")), /Connection: close/i);
  }
});

void test("a server's answer to a body that it does not read to its end arrives, although its connection is closed before the rest", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const { port } = await fixture.serve(sandbox.host, 0, (_, response) => {
    response.writeHead(413, { connection: "close", "content-length": "3" }).end("big");
  });
  const body = "x".repeat(4 * 1024 * 1024);
  for (let round = 0; round < 20; round++) {
    using client = fixture.dial();
    client.send(`POST / HTTP/1.1\r\n${hostLine(port, sandbox.sandboxID)}Content-Length: ${body.length}\r\n\r\n`);
    client.send(body);
    assert.match(await client.until((received) => received.endsWith("big") || received.includes("}")), /^HTTP\/1\.1 413 /);
  }
});

void test("a sandbox that resumes at another address is found there", async () => {
  await using fixture = await openFixture();
  const before = fixture.sandbox();
  const { port } = await fixture.serve(before.host, 0, (_, response) => response.end("before"));
  const request = `GET / HTTP/1.1\r\n${hostLine(port, before.sandboxID)}\r\n`;
  using client = fixture.dial();
  client.send(request);
  await client.until((received) => received.endsWith("before"));
  const after = fixture.sandbox({ sandboxID: before.sandboxID });
  await fixture.serve(after.host, port, (_, response) => response.end("after"));
  client.send(request);
  await client.until((received) => received.endsWith("after"));
});

void test("a client that leaves before the response closes the request upstream", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const arrived = Promise.withResolvers<void>();
  const left = Promise.withResolvers<void>();
  const { port } = await fixture.serve(sandbox.host, 0, (_, response) => {
    response.on("close", () => left.resolve());
    arrived.resolve();
  });
  using client = fixture.dial();
  client.send(`GET / HTTP/1.1\r\n${hostLine(port, sandbox.sandboxID)}\r\n`);
  await arrived.promise;
  client.socket.destroy();
  await left.promise;
});

/** envd's relay as the node uses it: checks the token, then connects to a port of 127.0.0.1 and joins both connections. */
function relay(token: string, ports: Map<number, number>, seen: string[]) {
  return createServer((_, response) => response.end("envd")).on("upgrade", (request, socket: Socket) => {
    seen.push(request.url ?? "");
    const port = ports.get(Number(new URL(`http://a${request.url}`).searchParams.get("port")));
    const refuse = (status: string) => socket.end(`HTTP/1.1 ${status}\r\nContent-Length: 0\r\n\r\n`);
    if (request.headers["x-access-token"] !== token || request.headers.upgrade !== "svc-relay") return refuse("401 Unauthorized");
    if (port === undefined) return refuse("502 Bad Gateway");
    const inner = connect(port, "127.0.0.1", () => {
      socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: svc-relay\r\n\r\n");
      socket.pipe(inner).pipe(socket);
    });
    inner.on("error", () => socket.destroy());
    socket.on("error", () => inner.destroy());
  });
}

async function openRelayed(fixture: Fixture, where: "tcp" | "unix") {
  const seen: string[] = [];
  const ports = new Map<number, number>();
  let sandbox = fixture.sandbox();
  const path = join(sandbox.handle.directory, "envd.sock");
  if (where === "unix") {
    fixture.entries.delete(sandbox.sandboxID);
    sandbox = fixture.sandbox({ handle: { ...sandbox.handle, endpoint: { kind: "unix", path } } });
  }
  const envd = relay(sandbox.envdAccessToken, ports, seen);
  const sockets = new Set<Socket>();
  envd.on("connection", (socket) => sockets.add(socket));
  await listening(envd, where === "unix" ? { path } : { host: sandbox.host, port: 49983 });
  return {
    ...sandbox,
    seen,
    ports,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => envd.close(resolve));
      rmSync(path, { force: true });
    },
  };
}

for (const where of ["tcp", "unix"] as const) {
  void test(`a server that listens on the sandbox's loopback only is reached through envd (${where})`, async () => {
    await using fixture = await openFixture();
    await using sandbox = await openRelayed(fixture, where);
    const inner = await fixture.serve("127.0.0.1", 0, (request, response) => response.end(`inner ${request.url}`));
    sandbox.ports.set(8080, inner.port);
    for (let time = 0; time < 3; time++) {
      const received = await fixture.raw(`GET /${time} HTTP/1.1\r\n${hostLine(8080, sandbox.sandboxID)}Connection: close\r\n\r\n`);
      assert.match(received, new RegExp(`inner /${time}$`));
    }
    assert.deepEqual(sandbox.seen, ["/relay?port=8080"], "the relayed connection is kept");
    const closed = await fixture.raw(`GET / HTTP/1.1\r\n${hostLine(8081, sandbox.sandboxID)}Connection: close\r\n\r\n`);
    assert.match(closed, /x-svc-reason: port_closed/);
    const envd = await fixture.raw(
      `GET /health HTTP/1.1\r\n${hostLine(49983, sandbox.sandboxID)}X-Access-Token: ${sandbox.envdAccessToken}\r\nConnection: close\r\n\r\n`,
    );
    assert.match(envd, /envd$/);
    const forbidden = await fixture.raw(
      `GET /relay?port=8080 HTTP/1.1\r\n${hostLine(49983, sandbox.sandboxID)}X-Access-Token: ${sandbox.envdAccessToken}\r\nConnection: Upgrade\r\nUpgrade: svc-relay\r\n\r\n`,
      (received) => received.includes("}"),
    );
    assert.match(forbidden, /^HTTP\/1\.1 404 /);
  });
}

void test("closing the proxy lets a request in flight end and refuses new connections", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const arrived = Promise.withResolvers<() => void>();
  const { port } = await fixture.serve(sandbox.host, 0, (_, response) => arrived.resolve(() => response.end("finished")));
  using client = fixture.dial();
  client.send(`GET / HTTP/1.1\r\n${hostLine(port, sandbox.sandboxID)}\r\n`);
  const finish = await arrived.promise;
  const closed = fixture.proxy.close();
  await assert.rejects(fetch(`http://127.0.0.1:${fixture.port}/health`));
  finish();
  const received = await client.until((_, ended) => ended);
  assert.match(received, /\r\nConnection: close\r\n[\s\S]*finished$/);
  await closed;
});

void test("requests are counted by target and status class", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const { port } = await fixture.serve(sandbox.host, 0, (_, response) => response.end(randomBytes(10)));
  await fixture.raw(`GET / HTTP/1.1\r\n${hostLine(port, sandbox.sandboxID)}Connection: close\r\n\r\n`);
  await fixture.raw(`GET / HTTP/1.1\r\n${hostLine(49983, sandbox.sandboxID)}Connection: close\r\n\r\n`);
  const text = await fixture.metrics.text();
  assert.match(text, /svc_proxy_request_seconds_count\{target="application",code="2xx"\} 1/);
  assert.match(text, /svc_proxy_request_seconds_bucket\{le="\+Inf",target="none",code="4xx"\} 1/);
  assert.match(text, /svc_proxy_connections\{side="upstream"\} 1/);
  assert.match(text, /svc_proxy_bytes_total\{direction="in"\} [1-9]/);
});

void test("the last bytes of each side of an upgraded connection arrive, whichever side ends first", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const last = 4 * 1024 * 1024;
  let got = 0;
  const port = await fixture.serveRaw(sandbox.host, 0, (socket) => {
    socket.once("data", () => {
      socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n");
      socket.on("data", (bytes) => (got += bytes.length)).on("end", () => socket.end(Buffer.alloc(last)));
    });
  });
  using client = fixture.dial();
  client.send(`GET / HTTP/1.1\r\nHost: ${port}-${sandbox.sandboxID}.localhost\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n`);
  const head = await client.until((received) => received.endsWith("\r\n\r\n"));
  client.socket.end(Buffer.alloc(last));
  const received = await client.until((_, closed) => closed);
  assert.deepEqual([got, received.length - head.length], [last, last]);
});
