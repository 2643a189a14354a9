// If a target answers that the sandbox is elsewhere, the request goes there, complete and once.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { test } from "node:test";
import { answer } from "../src/proxy/answer.ts";
import { Front } from "../src/proxy/front.ts";
import { proxyNames } from "../src/proxy/header-ids.ts";
import { proxyLimits } from "../src/proxy/limits.ts";
import { RequestHead } from "../src/proxy/request-head.ts";
import { dropsOf, rewriteRequest } from "../src/proxy/rewrite.ts";
import { Target, UpstreamPool } from "../src/proxy/target.ts";

/** A proxy whose attempts of one request go to one server after another; the last server answers all further ones. */
async function openRounds(saysMoved: boolean, ...listeners: readonly RequestListener[]) {
  const stack = new AsyncDisposableStack();
  const pool = new UpstreamPool(proxyLimits);
  const targets: Target[] = [];
  for (const listener of listeners) {
    const server = createServer(listener).listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    stack.defer(() => {
      server.closeAllConnections();
      server.close();
    });
    const answerFor = (trouble: string, detail: string) => answer(502, `${trouble}: ${detail}`);
    const ways = [{ connect: { host: "127.0.0.1", port } }];
    targets.push(new Target(pool, { idleMs: 1_000, saysMoved, ways: () => ways, reached: () => {}, answerFor }));
  }
  const head = new RequestHead(proxyNames(["svc"]), proxyLimits.headLines);
  const drops = dropsOf(head.names.names.length, []);
  const front = new Front({
    listen: { host: "127.0.0.1", port: 0 },
    limits: proxyLimits,
    pool,
    head,
    route: (request, { rounds }) => ({
      target: targets[Math.min(rounds, targets.length - 1)] as Target,
      text: rewriteRequest(request, { drops, target: undefined, added: "", upgrade: true }),
      upgrade: true,
      kind: 0,
    }),
    observe: () => {},
    onFault: (error) => {
      throw error;
    },
  });
  const { port } = await front.listen();
  stack.defer(() => front.close());
  return { url: `http://127.0.0.1:${port}`, port, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

const moved: RequestListener = (request, response) => {
  request.resume().on("end", () => response.writeHead(421, { "X-Svc-Reason": "moved", "content-type": "application/json" }).end('{"code":421}'));
};

const mirror: RequestListener = (request, response) => {
  let body = "";
  request.on("data", (bytes: Buffer) => (body += String(bytes)));
  request.on("end", () => response.end(`${request.method} ${request.url} ${request.headers["x-own"] ?? ""} ${body}`));
};

void test("a request that a target redirects reaches the next one with its method, path, headers and body", async () => {
  await using proxy = await openRounds(true, moved, moved, mirror);
  for (const round of ["dialled", "a connection that was kept"]) {
    const response = await fetch(`${proxy.url}/a?b=c`, { method: "POST", headers: { "x-own": "1" }, body: "hello" });
    assert.deepEqual([response.status, await response.text()], [200, "POST /a?b=c 1 hello"], round);
  }
});

void test("requests that were sent behind a redirected one are answered after it, in order", async () => {
  await using proxy = await openRounds(true, moved, mirror);
  const socket = connect(proxy.port, "127.0.0.1");
  let received = "";
  socket.on("data", (bytes) => (received += String(bytes)));
  socket.write("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  await once(socket, "close");
  assert.deepEqual(received.match(/GET \/\d|HTTP\/1\.1 \d+/g), ["HTTP/1.1 200", "GET /1", "HTTP/1.1 200", "GET /2", "HTTP/1.1 421"]);
});

void test("a request that cannot be sent twice, or whose target is not trusted to redirect, is answered 421", async () => {
  await using proxy = await openRounds(true, moved, mirror);
  const large = await fetch(proxy.url, { method: "POST", body: "x".repeat(100_000) });
  assert.equal(large.status, 421);
  await large.body?.cancel();
  await using other = await openRounds(false, moved, mirror);
  const response = await fetch(other.url);
  assert.deepEqual([response.status, await response.text()], [421, '{"code":421}']);
});

void test("a request that every target redirects is answered in the end", async () => {
  await using proxy = await openRounds(true, moved);
  assert.equal((await fetch(proxy.url)).status, 421);
});
