// Traffic through the proxy: methods, bodies, streams, upgrades, pipelines, ends.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { test } from "node:test";
import { WebSocket, WebSocketServer } from "ws";
import { bodyOf, openFixture } from "./proxy-fixture.ts";

type Seen = { who: string; method: string; url: string; headers: Record<string, string> };

void test("a request that names no sandbox reaches the control plane with the client's address", async () => {
  await using fixture = await openFixture();
  const seen = (await (
    await fetch(`http://127.0.0.1:${fixture.port}/v2/sandboxes?limit=3`, { headers: { "x-forwarded-for": "6.6.6.6", "x-api-key": "k" } })
  ).json()) as Seen;
  assert.equal(seen.who, "control");
  assert.equal(seen.url, "/v2/sandboxes?limit=3");
  assert.equal(seen.headers["x-forwarded-for"], "127.0.0.1");
  assert.equal(seen.headers["x-api-key"], "k");
});

void test("requests for the control plane, for envd and for applications mix on one connection", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const echo = (who: string) =>
    fixture.serve(sandbox.host, who === "envd" ? 49983 : 0, (request, response) => response.end(`${who} ${request.method} ${request.url}`));
  await echo("envd");
  const { port } = await echo("application");
  const pair = (target: number) => `x-svc-sandbox-id: ${sandbox.sandboxID}\r\nx-svc-target-port: ${target}\r\n`;
  const received = await fixture.raw(
    `GET /health HTTP/1.1\r\nHost: a\r\n\r\n` +
      `GET /proxy/files?path=x HTTP/1.1\r\nHost: a\r\nX-Access-Token: ${sandbox.envdAccessToken}\r\n${pair(49983)}\r\n` +
      `PATCH /proxy HTTP/1.1\r\nHost: a\r\n${pair(port)}\r\n` +
      `GET /x HTTP/1.1\r\nHost: ${port}-${sandbox.sandboxID}.localhost:8000\r\nConnection: close\r\n\r\n`,
  );
  assert.match(received, /"who":"control"[\s\S]*envd GET \/files\?path=x[\s\S]*application PATCH \/[\s\S]*application GET \/x/);
});

void test("a sandbox that is not running answers 502 with the text that SDKs recognize", async () => {
  await using fixture = await openFixture();
  const received = await fixture.raw("GET /health HTTP/1.1\r\nHost: a\r\ne2b-sandbox-id: igone\r\ne2b-sandbox-port: 49983\r\nConnection: close\r\n\r\n");
  assert.match(received, /^HTTP\/1\.1 502 /);
  assert.match(received, /x-svc-reason: not_found/);
  assert.deepEqual(bodyOf(received), { sandboxId: "igone", message: "The sandbox was not found", code: 502 });
});

void test("a paused sandbox that traffic must not resume answers with the text that SDKs recognize, and its header says that it is paused", async () => {
  await using fixture = await openFixture();
  const { sandboxID } = fixture.sandbox();
  fixture.pauseWithoutWake(sandboxID);
  const received = await fixture.raw(`GET /health HTTP/1.1\r\nHost: 49983-${sandboxID}.localhost\r\nConnection: close\r\n\r\n`);
  assert.match(received, /^HTTP\/1\.1 502 [\s\S]*x-svc-reason: paused/);
  assert.deepEqual(bodyOf(received), { sandboxId: sandboxID, message: "The sandbox was not found", code: 502 });
});

void test("every method, HEAD and bodiless statuses included, leaves the connection usable", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const { port } = await fixture.serve(sandbox.host, 0, (request, response) => {
    if (request.url === "/304") response.writeHead(304, { etag: '"x"' }).end();
    else if (request.url === "/204") response.writeHead(204).end();
    else response.setHeader("x-method", request.method ?? "").end(request.method === "HEAD" ? undefined : "body");
  });
  const line = (method: string, path: string) =>
    `${method} ${path} HTTP/1.1\r\nHost: a\r\nx-svc-sandbox-id: ${sandbox.sandboxID}\r\nx-svc-target-port: ${port}\r\n`;
  const methods = ["HEAD", "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT"];
  let text = methods.map((method) => `${line(method, "/")}\r\n`).join("");
  text += `${line("GET", "/304")}\r\n${line("DELETE", "/204")}\r\n${line("GET", "/last")}Connection: close\r\n\r\n`;
  const received = await fixture.raw(text);
  assert.deepEqual(
    [...received.matchAll(/x-method: (\w+)/gi)].map((match) => match[1]),
    [...methods, "GET"],
  );
  assert.equal(received.match(/HTTP\/1\.1 (200|204|304)/g)?.length, methods.length + 3);
  assert.equal(received.match(/\r\n\r\nbody/g)?.length, methods.length);
});

void test("a WebSocket passes with its subprotocol, both ways, and its end reaches the other side", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox({ trafficPrivate: true });
  const { port, server } = await fixture.serve(sandbox.host, 0, (_, response) => response.end());
  const sockets = new WebSocketServer({ server, handleProtocols: (offered) => [...offered][1] ?? false });
  const closed = Promise.withResolvers<number>();
  sockets.on("connection", (socket, request) => {
    assert.equal(request.headers["e2b-traffic-access-token"], undefined);
    socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary })).on("close", (code) => closed.resolve(code));
  });
  const client = new WebSocket(`ws://127.0.0.1:${fixture.port}/ws`, ["one", "two"], {
    headers: { host: `${port}-${sandbox.sandboxID}.localhost`, "e2b-traffic-access-token": sandbox.trafficAccessToken },
  });
  await once(client, "open");
  assert.equal(client.protocol, "two");
  for (const size of [1, 70_000, 3_000_000]) {
    const message = randomBytes(size);
    const answered = once(client, "message");
    client.send(message);
    assert.deepEqual((await answered)[0], message);
  }
  client.close(4321);
  assert.equal(await closed.promise, 4321);
});

void test("server-sent events arrive one by one, and leaving closes the stream upstream", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const left = Promise.withResolvers<void>();
  let next = () => {};
  const { port } = await fixture.serve(sandbox.host, 0, (_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    let count = 0;
    next = () => response.write(`data: ${++count}\n\n`);
    next();
    response.on("close", () => left.resolve());
  });
  using client = fixture.dial();
  client.send(`GET /events HTTP/1.1\r\nHost: ${port}-${sandbox.sandboxID}.localhost\r\n\r\n`);
  await client.until((received) => received.includes("data: 1\n\n"));
  next();
  await client.until((received) => received.includes("data: 2\n\n"));
  client.socket.destroy();
  await left.promise;
});

void test("interim responses, the 100 a client waits for, and trailers pass", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const { port, server } = await fixture.serve(sandbox.host, 0, () => {});
  server.on("checkContinue", (request, response) => {
    response.writeEarlyHints({ link: "</a.css>; rel=preload" });
    response.writeContinue();
    request.resume().on("end", () => {
      response.writeHead(200, { trailer: "x-sum" });
      response.addTrailers({ "x-sum": `${request.trailers["x-in"]}` });
      response.end("done");
    });
  });
  using client = fixture.dial();
  client.send(
    `POST / HTTP/1.1\r\nHost: ${port}-${sandbox.sandboxID}.localhost\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\nTrailer: x-in\r\nConnection: close\r\n\r\n`,
  );
  await client.until((received) => /HTTP\/1\.1 103 [\s\S]*HTTP\/1\.1 100 Continue\r\n\r\n$/.test(received));
  client.send("3;ext=1\r\nabc\r\n0\r\nx-in: 7\r\n\r\n");
  const received = await client.until((_, closed) => closed);
  assert.match(received, /HTTP\/1\.1 200 OK[\s\S]*x-sum: 7\r\n\r\n$/i);
});

void test("HTTP/1.0 clients and upstreams are served, and bodies that end with the connection arrive completely", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const old = await fixture.serveRaw(sandbox.host, 0, (socket) => {
    socket.once("data", () => socket.end("HTTP/1.0 200 OK\r\nServer: old\r\n\r\nuntil the end"));
  });
  const { port } = await fixture.serve(sandbox.host, 0, (request, response) => response.end(`version ${request.httpVersion}`));
  const pair = (target: number) => `x-svc-sandbox-id: ${sandbox.sandboxID}\r\nx-svc-target-port: ${target}\r\n`;
  const fromOld = await fixture.raw(`GET / HTTP/1.1\r\nHost: a\r\n${pair(old)}\r\n`);
  assert.match(fromOld, /^HTTP\/1\.1 200 OK\r\n[\s\S]*Connection: close\r\n\r\nuntil the end$/);
  const toOld = await fixture.raw(`GET / HTTP/1.0\r\n${pair(port)}\r\n`);
  assert.match(toOld, /\r\n\r\nversion 1\.0$/);
});

void test("a port on which nothing listens is distinguished from a sandbox that is gone", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const received = await fixture.raw(`GET / HTTP/1.1\r\nHost: 8080-${sandbox.sandboxID}.localhost\r\nConnection: close\r\n\r\n`);
  assert.match(received, /^HTTP\/1\.1 502 [\s\S]*x-svc-reason: port_closed/);
  assert.deepEqual(bodyOf(received), { sandboxId: sandbox.sandboxID, port: 8080, message: "The sandbox is running but port is not open", code: 502 });
});

void test("a refused request's body is discarded and the connection serves the next request", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const body = "x".repeat(100_000);
  const received = await fixture.raw(
    `POST /process.Process/Start HTTP/1.1\r\nHost: a\r\ne2b-sandbox-id: ${sandbox.sandboxID}\r\ne2b-sandbox-port: 49983\r\nContent-Length: ${body.length}\r\n\r\n${body}GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`,
  );
  assert.match(received, /^HTTP\/1\.1 401 [\s\S]*HTTP\/1\.1 200 OK[\s\S]*"who":"control"/);
});

void test("a kept connection that its server has closed meanwhile is replaced without an error for the client", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  let connections = 0;
  const port = await fixture.serveRaw(sandbox.host, 0, (socket) => {
    const mine = ++connections;
    let requests = 0;
    // The first connection answers once and breaks on the second request, like a server whose idle timeout has expired.
    socket.on("data", () => (++requests === 2 && mine === 1 ? socket.destroy() : socket.write(`HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n${mine}`)));
  });
  using client = fixture.dial();
  const request = `GET / HTTP/1.1\r\nHost: ${port}-${sandbox.sandboxID}.localhost\r\n\r\n`;
  client.send(request);
  await client.until((received) => received.endsWith("\r\n\r\n1"));
  client.send(request);
  await client.until((received) => received.endsWith("\r\n\r\n2"));
});
