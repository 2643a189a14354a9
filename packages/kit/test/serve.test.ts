// Operations over HTTP: bodies of DELETE, streams outside the table, empty answers, and the audit log.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { request } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { test } from "node:test";
import { call } from "@svc/contract/call.ts";
import { Failure, fail } from "@svc/contract/failures.ts";
import { operation } from "@svc/contract/operation.ts";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { serve } from "@svc/kit/serve.ts";
import type { AuditEntry } from "@svc/kit/serve-audit.ts";
import { z } from "zod";

const apiKey = "sdk_0123456789abcdef0123456789abcdef";
const UNTIL_BOUND_MS = 30_000;

const untag = operation({
  name: "untag",
  method: "DELETE",
  path: "/things/{thingID}/tags",
  summary: "",
  input: z.object({ thingID: z.string(), name: z.string(), tags: z.array(z.string()) }),
  output: z.undefined(),
  success: 204,
  credential: "apiKey",
  failures: [],
});
const openLook = operation({
  ...untag,
  name: "openLook",
  method: "GET",
  path: "/both",
  input: z.object({}),
  success: 200,
  output: z.object({}),
  credential: "none",
});
const closedDrop = operation({ ...untag, name: "closedDrop", path: "/both", input: z.object({}) });
const drop = operation({ ...untag, name: "drop", path: "/things/{thingID}", input: z.object({ thingID: z.string() }) });
const beginInput = z.object({ secret: z.string().optional(), egressProxy: z.undefined("network.egressProxy: is not offered").optional() });
const begin = operation({ ...untag, name: "begin", method: "POST", path: "/begin", input: beginInput, success: 202 });
const beginWithBody = operation({ ...begin, name: "beginWithBody", path: "/begin-with-body", output: z.object({}) });
const look = operation({
  ...untag,
  name: "look",
  method: "GET",
  path: "/things/{thingID}",
  input: z.object({ thingID: z.string() }),
  success: 200,
  output: z.object({}),
});
const refuse = operation({ ...begin, name: "refuse", path: "/refuse" });
const slow = operation({ ...begin, name: "slow", path: "/slow" });

async function open() {
  const audited: AuditEntry[] = [];
  const untagged: unknown[] = [];
  let goOn = () => {};
  const begun = Promise.withResolvers<void>();
  const app = serve({
    operations: { openLook, closedDrop, untag, drop, begin, beginWithBody, look, refuse, slow },
    handlers: {
      untag: (input) => void untagged.push(input),
      openLook: () => ({}),
      closedDrop: () => undefined,
      drop: () => undefined,
      begin: () => undefined,
      beginWithBody: () => ({}),
      look: () => ({}),
      refuse: () => fail("SANDBOX_PAUSED", "it is paused"),
      slow: () =>
        new Promise<undefined>((resolve) => {
          goOn = () => resolve(undefined);
          begun.resolve();
        }),
    },
    apiKey,
    anyOrigin: true,
    log: openLog("test", "silent"),
    metrics: openMetrics(),
    audit: (entry) => void audited.push(entry),
    raw(scope) {
      scope.put("/raw/:templateID", { config: { operation: "upload" } as object }, async (request) => {
        let bytes = 0;
        for await (const chunk of (request.body ?? []) as AsyncIterable<Buffer>) bytes += chunk.length;
        if (bytes === 3) fail("DISK_FULL", "three bytes are too many");
        return { bytes, streamed: !Buffer.isBuffer(request.body) };
      });
      scope.get("/open/:signature", { config: { open: true, operation: "open" } as object }, async () => ({ open: true }));
      scope.put("/open/:signature", { config: { open: true, operation: "open" } as object }, async () => ({ open: true }));
    },
  });
  await app.listen({ host: "127.0.0.1", port: 0 });
  const { port } = app.server.address() as AddressInfo;
  const baseURL = `http://127.0.0.1:${port}`;
  return {
    audited,
    untagged,
    baseURL,
    port,
    begun: begun.promise,
    goOn: () => goOn(),
    ask: (method: string, path: string, body?: string | Uint8Array<ArrayBuffer>, headers: Record<string, string> = { "x-api-key": apiKey }) =>
      fetch(baseURL + path, { method, headers, ...(body === undefined ? {} : { body }) }),
    [Symbol.asyncDispose]: () => app.close(),
  };
}

void test("input that cannot be parsed as a request is refused in the format of every other failure", async () => {
  await using server = await open();
  const key = `X-API-Key: ${apiKey}\r\n`;
  const requests: readonly (readonly [line: string, status: number, name: string])[] = [
    ["GET /things/%ff HTTP/1.1", 400, "INVALID_REQUEST"],
    ["GET /things/%zz HTTP/1.1", 400, "INVALID_REQUEST"],
    ["GET /th%c3ings/%e2%28%a1 HTTP/1.1", 400, "INVALID_REQUEST"],
    ["BREW /things HTTP/1.1", 405, "METHOD_NOT_ALLOWED"],
    ["PROPFIND /things HTTP/1.1", 404, "ROUTE_NOT_FOUND"],
    ["GET /things HTTP/9.9", 400, "INVALID_REQUEST"],
    ["nothing at all", 405, "METHOD_NOT_ALLOWED"],
    ["GET /nowhere HTTP/1.1", 404, "ROUTE_NOT_FOUND"],
  ];
  for (const [line, status, name] of requests) {
    const socket = connect(server.port, "127.0.0.1").setEncoding("utf8");
    socket.end(`${line}\r\nHost: a\r\n${key}Connection: close\r\n\r\n`);
    let said = "";
    for await (const text of socket as AsyncIterable<string>) said += text;
    assert.match(said, new RegExp(`^HTTP/1\\.1 ${status} `), line);
    const body = JSON.parse(said.slice(said.indexOf("\r\n\r\n") + 4)) as { code: number; message: string; error_code: string };
    assert.deepEqual([body.code, body.error_code, typeof body.message], [status, name, "string"], line);
  }
});

void test("a DELETE may carry its members in a body, in its query, or in both", async () => {
  await using server = await open();
  await call(untag, { thingID: "t1", name: "n", tags: ["a", "b"] }, { baseURL: server.baseURL, apiKey });
  assert.equal((await server.ask("DELETE", "/things/t2/tags?name=n&tags=a&tags=b")).status, 204);
  assert.equal((await server.ask("DELETE", "/things/t3/tags?name=n", JSON.stringify({ tags: ["a", "b"], thingID: "other" }))).status, 204);
  assert.deepEqual(
    server.untagged,
    ["t1", "t2", "t3"].map((thingID) => ({ thingID, name: "n", tags: ["a", "b"] })),
  );
  await call(drop, { thingID: "t1" }, { baseURL: server.baseURL, apiKey });
});

void test("an answer without a body says that its length is 0", async () => {
  await using server = await open();
  const empty = await server.ask("POST", "/begin", "{}");
  assert.deepEqual([empty.status, empty.headers.get("content-length"), await empty.text()], [202, "0", ""]);
  const object = await server.ask("POST", "/begin-with-body", "{}");
  assert.deepEqual([object.status, object.headers.get("content-length"), await object.text()], [202, "2", "{}"]);
});

void test("a route outside the table takes a body of any size and type as a stream, and requires the API key", async () => {
  await using server = await open();
  const big = new Uint8Array(5 * 1024 * 1024);
  for (const type of [undefined, "application/json", "application/gzip", "text/x-unknown; a=b"]) {
    const headers: Record<string, string> = { "x-api-key": apiKey, ...(type === undefined ? {} : { "content-type": type }) };
    const answer = await server.ask("PUT", "/raw/t1", big, headers);
    assert.deepEqual(await answer.json(), { bytes: big.length, streamed: true }, type);
  }
  assert.deepEqual(await (await server.ask("PUT", "/raw/t1")).json(), { bytes: 0, streamed: true });
  assert.equal((await server.ask("PUT", "/raw/t1", big, {})).status, 401);
  assert.equal((await server.ask("GET", "/open/sig", undefined, {})).status, 200);
});

void test("an error of a route outside the table is answered like any failure", async () => {
  await using server = await open();
  const answer = await server.ask("PUT", "/raw/t1", "abc");
  assert.deepEqual([answer.status, await answer.json()], [507, { code: 507, message: "three bytes are too many", error_code: "DISK_FULL" }]);
});

void test("the table's bodies stay limited next to the streams", async () => {
  await using server = await open();
  assert.equal((await server.ask("POST", "/begin", JSON.stringify({ secret: "x".repeat(1_100_000) }))).status, 413);
});

void test("a client that sends too much gets the answer, even if it reads only after it has sent everything", async () => {
  await using server = await open();
  const body = Buffer.alloc(32 * 1024 * 1024, "x");
  const client = connect(server.port, "127.0.0.1");
  await once(client, "connect");
  client.write(`POST /begin HTTP/1.1\r\nHost: a\r\nX-Api-Key: ${apiKey}\r\nContent-Length: ${body.length}\r\n\r\n`);
  await new Promise<void>((resolve, reject) => client.write(body, (error) => (error ? reject(error) : resolve())));
  const [head] = (await once(client, "data", { signal: AbortSignal.timeout(UNTIL_BOUND_MS) })) as [Buffer];
  assert.match(head.toString(), /^HTTP\/1.1 413 /);
  client.destroy();
});

void test("every change and every refused credential is audited once, reads are not, and no key or body is logged", async () => {
  await using server = await open();
  await server.ask("GET", "/things/t1");
  await server.ask("DELETE", "/things/t1");
  await server.ask("POST", "/begin", JSON.stringify({ secret: "body-secret" }), { "x-api-key": apiKey, "user-agent": "agent/1", "x-forwarded-for": "6.6.6.6" });
  await server.ask("POST", "/refuse", "{}");
  await server.ask("GET", "/things/t1", undefined, { "x-api-key": "wrong-key-entirely" });
  await server.ask("GET", "/things/t1", undefined, {});
  await server.ask("PUT", "/raw/t9", "abcd");
  await server.ask("PUT", "/open/capability-in-path", "");
  await server.ask("POST", "/nowhere", "{}");
  const told = server.audited.map(({ operation, method, route, status, errorCode, target }) => [operation, method, route, status, errorCode, target]);
  assert.deepEqual(told, [
    ["drop", "DELETE", "/things/{thingID}", 204, undefined, { thingID: "t1" }],
    ["begin", "POST", "/begin", 202, undefined, {}],
    ["refuse", "POST", "/refuse", 409, "SANDBOX_PAUSED", {}],
    ["look", "GET", "/things/{thingID}", 401, "UNAUTHENTICATED", { thingID: "t1" }],
    ["look", "GET", "/things/{thingID}", 401, "UNAUTHENTICATED", { thingID: "t1" }],
    ["upload", "PUT", "/raw/{templateID}", 200, undefined, { templateID: "t9" }],
    ["open", "PUT", "/open/{signature}", 200, undefined, {}],
    ["none", "POST", "none", 404, "ROUTE_NOT_FOUND", {}],
  ]);
  const [, second, , wrong, missing] = server.audited;
  assert.equal(second?.client, "127.0.0.1", "over TCP the peer counts, not what it claims");
  assert.equal(second?.userAgent, "agent/1");
  assert.equal(second?.keyFingerprint, createHash("sha256").update(apiKey).digest("hex").slice(0, 8));
  assert.notEqual(wrong?.keyFingerprint, second?.keyFingerprint);
  assert.equal(missing?.keyFingerprint, undefined);
  const text = JSON.stringify(server.audited);
  for (const secret of [apiKey, "body-secret", "wrong-key-entirely", "capability-in-path"]) assert.ok(!text.includes(secret), secret);
});

void test("a change whose client hangs up before the answer is still audited", async () => {
  await using server = await open();
  const ask = request({ host: "127.0.0.1", port: server.port, method: "POST", path: "/slow", headers: { "x-api-key": apiKey, "content-length": "2" } });
  ask.on("error", () => {});
  ask.end("{}");
  await server.begun;
  ask.destroy();
  await new Promise((resolve) => setTimeout(resolve, 200));
  server.goOn();
  const end = performance.now() + UNTIL_BOUND_MS;
  while (server.audited.length === 0 && performance.now() < end) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.deepEqual(
    server.audited.map(({ operation, status }) => [operation, status]),
    [["slow", 202]],
  );
});

void test("a request on a unix socket is attributed to the client that the proxy names", async () => {
  const audited: AuditEntry[] = [];
  const path = `\0svc-serve-test-${process.pid}`;
  const app = serve({
    operations: { begin },
    handlers: { begin: (_input, context) => void assert.equal(context.client, "192.0.2.7") },
    apiKey,
    log: openLog("test", "silent"),
    metrics: openMetrics(),
    audit: (entry) => void audited.push(entry),
  });
  await app.listen({ path });
  const socket = connect({ path });
  socket.end(`POST /begin HTTP/1.1\r\nhost: x\r\nx-api-key: ${apiKey}\r\nx-forwarded-for: 192.0.2.7\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}`);
  socket.resume();
  await once(socket, "close");
  assert.deepEqual(
    audited.map(({ client, status }) => [client, status]),
    [["192.0.2.7", 202]],
  );
  await app.close();
});

void test("a failure's name is audited even if fastify itself refused the request", async () => {
  await using server = await open();
  await server.ask("POST", "/begin", "{not json");
  assert.deepEqual([server.audited[0]?.status, server.audited[0]?.errorCode], [400, new Failure("INVALID_REQUEST", "").name]);
});

void test("a path that is open to one method requires the key for the others", async () => {
  await using server = await open();
  assert.equal((await server.ask("GET", "/both", undefined, {})).status, 200);
  assert.equal((await server.ask("DELETE", "/both", undefined, {})).status, 401);
  assert.equal((await server.ask("DELETE", "/both")).status, 204);
});

void test("a page of another origin may send a preflight, call with the key, and read answers and refusals", async () => {
  await using server = await open();
  const page = { origin: "https://app.example.com" };
  const wants = { "access-control-request-method": "POST", "access-control-request-headers": "content-type,x-api-key" };
  const preflight = await server.ask("OPTIONS", "/begin", undefined, { ...page, ...wants });
  assert.deepEqual(
    ["access-control-allow-origin", "access-control-allow-headers", "access-control-allow-credentials"].map((name) => preflight.headers.get(name)),
    ["*", "content-type,x-api-key", null],
  );
  assert.equal(preflight.status, 204);
  assert.match(preflight.headers.get("access-control-allow-methods") ?? "", /POST.*DELETE/);
  const call = await server.ask("POST", "/begin", "{}", { ...page, "x-api-key": apiKey });
  assert.deepEqual([call.status, call.headers.get("access-control-allow-origin")], [202, "*"]);
  const refused = await server.ask("POST", "/begin", "{}", page);
  assert.deepEqual([refused.status, refused.headers.get("access-control-allow-origin")], [401, "*"]);
  assert.equal((await server.ask("OPTIONS", "/begin", undefined, page)).status, 401);
});

void test("a refused member is named once", async () => {
  await using server = await open();
  const message = async (body: object) => ((await (await server.ask("POST", "/begin", JSON.stringify(body))).json()) as { message: string }).message;
  assert.equal(await message({ egressProxy: "x" }), "network.egressProxy: is not offered");
  assert.match(await message({ secret: 7 }), /^secret: /);
});
