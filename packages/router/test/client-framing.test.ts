// The router's side towards clients: ambiguous requests are refused, and bytes in any pieces give the same answers.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { setImmediate as tick } from "node:timers/promises";
import { ambiguousRequests } from "@svc/harness/ambiguous-requests.ts";
import { until } from "@svc/harness/until.ts";
import fc from "fast-check";
import { Bodies } from "../src/bodies.ts";
import { send } from "../src/client/answers.ts";
import { clientLimits } from "../src/client/limits.ts";
import type { ClientRequest } from "../src/client/request.ts";
import { ClientServer } from "../src/client/server.ts";
import { Refusal } from "../src/refusals.ts";

type Options = { limits?: Partial<typeof clientLimits>; serve?: (request: ClientRequest) => void; admit?: (request: ClientRequest) => void; maxBytes?: number };

/** Answers each request with its target and its body. */
function echo(request: ClientRequest): void {
  const text = `<${request.method} ${request.target} ${request.body.bytes.toString()}>`;
  request.body.release();
  send(request, 200, text, "text/plain");
}

async function openServer({ limits = {}, serve = echo, admit = () => {}, maxBytes = 100_000 }: Options = {}) {
  const bodies = new Bodies({ maxBytes, maxHeldBytes: 1_000_000 });
  const refused: string[] = [];
  const server = new ClientServer({
    listen: { host: "127.0.0.1", port: 0 },
    bodies,
    dropsKey: false,
    limits: { ...clientLimits, ...limits },
    admit,
    serve,
    refused: ({ code }) => refused.push(code),
    onFault: assert.ifError,
  });
  await server.listen();
  const dial = () => {
    const socket = connect(server.port, "127.0.0.1").setNoDelay(true);
    const client = { socket, received: "", closed: false };
    socket.on("error", () => {}).on("close", () => (client.closed = true));
    socket.setEncoding("latin1").on("data", (text) => (client.received += text));
    return client;
  };
  return {
    server,
    bodies,
    refused,
    dial,
    /** Sends the bytes and returns all that comes until the connection ends. */
    async raw(text: string): Promise<string> {
      const client = dial();
      client.socket.write(text, "latin1");
      await until("the connection has ended", () => client.closed || undefined, 5);
      return client.received;
    },
    async [Symbol.asyncDispose]() {
      await server.close();
    },
  };
}

void test("an ambiguous request gets 400 in OpenAI's shape, and what follows it is not read", async (t) => {
  let served = 0;
  await using server = await openServer({
    serve: (request) => {
      served++;
      echo(request);
    },
  });
  for (const [name, text] of Object.entries(ambiguousRequests))
    await t.test(name, async () => {
      const received = await server.raw(`${text}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n`);
      assert.match(received, /^HTTP\/1\.1 400 Bad Request\r\n[\s\S]*\r\nconnection: close\r\n/);
      assert.equal(received.match(/HTTP\/1\.1 \d/g)?.length, 1, received);
      const { error } = JSON.parse(received.slice(received.indexOf("\r\n\r\n"))) as { error: { code: string; type: string; message: string } };
      assert.deepEqual([error.code, error.type], ["invalid_request", "invalid_request_error"]);
    });
  assert.equal(served, 0);
  assert.equal(server.bodies.heldBytes, 0);
});

const requests = [
  "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello world",
  "PUT /2?x=y HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\na;x=y\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n",
  `\r\nGET /3 HTTP/1.1\r\nHost: a\r\nX-Long: ${"x".repeat(300)}\r\n\r\n`,
  "HEAD /4 HTTP/1.1\r\nHost: a\r\n\r\n",
  "DELETE /5 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
].join("");

void test("pipelined requests get the same answers wherever their bytes are cut, whether they are answered at once or later", async () => {
  let isLate = false;
  await using server = await openServer({
    serve: (request) => {
      if (isLate) setImmediate(() => echo(request));
      else echo(request);
    },
  });
  const run = async (cuts: readonly number[]) => {
    const client = server.dial();
    const offsets = [...new Set([0, ...cuts.map((cut) => cut % requests.length), requests.length])].sort((one, other) => one - other);
    for (const [at, start] of offsets.slice(0, -1).entries()) {
      client.socket.write(requests.slice(start, offsets[at + 1]), "latin1");
      await tick();
      await tick();
    }
    await until("the connection has ended", () => client.closed || undefined, 1);
    return client.received;
  };
  const whole = await run([]);
  assert.deepEqual(
    [...whole.matchAll(/<([^>]*)>/g)].map(([, answer]) => answer),
    ["POST /1 hello world", "PUT /2?x=y abcde0123456789", "GET /3 ", "DELETE /5 "],
  );
  assert.equal(whole.match(/HTTP\/1\.1 200 OK/g)?.length, 5, "HEAD has an answer without a body");
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(2_000), { maxLength: 30 }), fc.boolean(), async (cuts, late) => {
      isLate = late;
      assert.equal(await run(cuts), whole);
    }),
    { numRuns: 60 },
  );
  isLate = false;
  assert.equal(await run(Array.from(requests, (_, place) => place)), whole, "byte by byte");
  assert.equal(server.bodies.heldBytes, 0);
});

void test("a head beyond the bound gets 431, and a head or a body that does not end in time gets 408", async () => {
  await using server = await openServer();
  assert.match(await server.raw(`GET / HTTP/1.1\r\nHost: a\r\nX: ${"x".repeat(80_000)}\r\n\r\n`), /^HTTP\/1\.1 431 [\s\S]*"code":"head_too_large"/);
  assert.match(await server.raw(`GET / HTTP/1.1\r\nHost: a\r\n${"X: y\r\n".repeat(300)}\r\n`), /^HTTP\/1\.1 431 /);
  await using hasty = await openServer({ limits: { headMs: 200, bodyMs: 200, idleMs: 200 } });
  assert.match(await hasty.raw("GET / HTTP/1.1\r\nHost: a\r\nX: "), /^HTTP\/1\.1 408 [\s\S]*"code":"head_timeout"/);
  assert.match(await hasty.raw("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf"), /^HTTP\/1\.1 408 [\s\S]*"code":"body_timeout"/);
  assert.equal(await hasty.raw(""), "", "a connection without a request ends without a word");
  assert.deepEqual(hasty.refused, ["head_timeout", "body_timeout"]);
  assert.equal(hasty.bodies.heldBytes, 0);
});

void test("a connection beyond the bound gets 503, unless one without a request can make way", async () => {
  await using server = await openServer({ limits: { connections: 1 }, serve: () => {} });
  const first = server.dial();
  first.socket.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  assert.match(await server.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), /^HTTP\/1\.1 503 [\s\S]*retry-after: 1[\s\S]*"code":"router_full"/);
  first.socket.destroy();
});

void test("a body is refused before it is read: for its length, or since the client may not ask", async () => {
  await using server = await openServer({
    maxBytes: 100,
    admit: ({ target }) => {
      if (target === "/no") throw new Refusal("unauthorized", "no");
    },
  });
  const post = (target: string, length: number, body = "") => `POST ${target} HTTP/1.1\r\nHost: a\r\nContent-Length: ${length}\r\n\r\n${body}`;
  assert.match(await server.raw(post("/", 101)), /^HTTP\/1\.1 413 [\s\S]*connection: close[\s\S]*"code":"body_too_large"/);
  assert.match(await server.raw(post("/no", 50, "half")), /^HTTP\/1\.1 401 [\s\S]*connection: close/);
  const chunked = `POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n${"20\r\n".padEnd(36, "x")}\r\n`;
  assert.match(await server.raw(`${chunked}${"50\r\n".padEnd(84, "x")}\r\n`), /^HTTP\/1\.1 413 /);
  // A body that came whole with its head leaves the connection usable.
  const last = "GET /yes HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  assert.match(await server.raw(`${post("/no", 4, "body")}${last}`), /^HTTP\/1\.1 401 [\s\S]*HTTP\/1\.1 200 OK[\s\S]*<GET \/yes >$/);
  assert.equal(server.bodies.heldBytes, 0);
});

void test("a client that waits for 100 Continue gets it, and one that leaves while it waits for its answer is noticed", async () => {
  let isGone = false;
  await using server = await openServer({
    serve: (request) => {
      if (request.target === "/echo") echo(request);
      else request.onGone = () => (isGone = true);
    },
  });
  const client = server.dial();
  client.socket.write("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\nConnection: close\r\n\r\n");
  await until("it may send its body", () => client.received.includes("100 Continue\r\n\r\n") || undefined, 5);
  client.socket.write("body");
  await until("its answer has come", () => client.received.endsWith("<POST /echo body>") || undefined, 5);
  for (const leave of ["end", "destroy", "resetAndDestroy"] as const) {
    isGone = false;
    const leaving = server.dial();
    leaving.socket.write("GET /wait HTTP/1.1\r\nHost: a\r\n\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\n", () => leaving.socket[leave]());
    await until(`${leave} is noticed`, () => isGone || undefined, 5);
  }
});

void test("a body that comes after its head is counted and kept, whatever other clients send before it is answered", async () => {
  const waiting: ClientRequest[] = [];
  await using server = await openServer({ serve: (request) => void waiting.push(request) });
  const clients = ["first", "other"].map((body) => ({ body, client: server.dial() }));
  for (const { body, client } of clients) {
    client.socket.write(`POST /${body} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n`);
    await until("it may send its body", () => client.received.includes("100 Continue") || undefined, 5);
  }
  for (const [at, { body, client }] of clients.entries()) {
    client.socket.write(body);
    await until("its body has come", () => waiting.length === at + 1 || undefined, 5);
  }
  assert.equal(server.bodies.heldBytes, 10);
  for (const request of waiting) echo(request);
  for (const { body, client } of clients) await until(`the body ${body} came back`, () => client.received.endsWith(`<POST /${body} ${body}>`) || undefined, 5);
});
