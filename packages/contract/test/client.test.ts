// The TypeScript client against a server on a socket: the requests it sends, and how it interprets the answers.
import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { SvcClient } from "../src/client.ts";
import { Failure } from "../src/failures.ts";

type Seen = { method: string; url: string; key: string | undefined; body: string };

async function serve(answer: (request: IncomingMessage, response: ServerResponse) => void) {
  const seen: Seen[] = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    seen.push({ method: request.method ?? "", url: request.url ?? "", key: request.headers["x-api-key"] as string | undefined, body });
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    seen,
    baseURL: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function listed(sandboxID: string) {
  const at = "2026-01-01T00:00:00Z";
  return {
    sandboxID,
    templateID: "base",
    clientID: "c",
    startedAt: at,
    endAt: at,
    cpuCount: 2,
    memoryMB: 1024,
    diskSizeMB: 1024,
    state: "running",
    envdVersion: "0.6.13",
    forkDepth: 0,
  };
}

function isFailure(name: string, message?: RegExp) {
  return (error: unknown) => error instanceof Failure && error.name === name && (message === undefined || message.test(error.message));
}

void test("list goes through all pages, and fetches the next one only when it is needed", async () => {
  await using server = await serve((request, response) => {
    const token = new URL(request.url ?? "", "http://x").searchParams.get("nextToken");
    const headers = token === "page-3" ? {} : { "x-next-token": token === null ? "page-2" : "page-3" };
    response.writeHead(200, headers).end(JSON.stringify([listed(`a${token}`), listed(`b${token}`)]));
  });
  const client = new SvcClient({ baseURL: server.baseURL, apiKey: "k" });
  const ids: string[] = [];
  for await (const { sandboxID } of client.list({ metadata: { "a b": "c&d=+" } })) ids.push(sandboxID);
  assert.deepEqual(ids, ["anull", "bnull", "apage-2", "bpage-2", "apage-3", "bpage-3"]);
  // The value is encoded twice: first the pairs, then the query.
  const query = new URL(server.seen[0]?.url ?? "", "http://x").searchParams;
  assert.equal(query.get("metadata"), "a%20b=c%26d%3D%2B");
  assert.equal((await client.list().next()).value?.sandboxID, "anull");
  assert.equal(server.seen.length, 4);
});

void test("the key comes from the argument, else from SDK_API_KEY, and without either nothing is sent", async () => {
  await using server = await serve((_, response) => response.writeHead(204).end());
  const before = process.env["SDK_API_KEY"];
  try {
    process.env["SDK_API_KEY"] = "from-environment";
    await new SvcClient({ baseURL: server.baseURL }).delete("i1");
    await new SvcClient({ baseURL: `${server.baseURL}/`, apiKey: "argument" }).delete("i1");
    delete process.env["SDK_API_KEY"];
    await assert.rejects(new SvcClient({ baseURL: server.baseURL }).setTimeout("i1", 5), isFailure("UNAUTHENTICATED", /SDK_API_KEY/));
    await new SvcClient({ baseURL: server.baseURL }).health();
  } finally {
    if (before !== undefined) process.env["SDK_API_KEY"] = before;
  }
  assert.deepEqual(
    server.seen.map(({ url, key }) => [url, key]),
    [
      ["/sandboxes/i1", "from-environment"],
      ["/sandboxes/i1", "argument"],
      ["/health", undefined],
    ],
  );
});

void test("an id cannot change the route of a request", async () => {
  await using server = await serve((_, response) => response.writeHead(204).end());
  await new SvcClient({ baseURL: server.baseURL, apiKey: "k" }).delete("../templates/base?x=");
  assert.equal(server.seen[0]?.url, "/sandboxes/..%2Ftemplates%2Fbase%3Fx%3D");
});

void test("a failure keeps the server's name, its message and the time to wait", async () => {
  await using server = await serve((_, response) => {
    response.writeHead(429, { "retry-after": "7" }).end(JSON.stringify({ code: 429, message: "queue full", error_code: "TOO_MANY_REQUESTS" }));
  });
  await assert.rejects(
    new SvcClient({ baseURL: server.baseURL, apiKey: "k" }).create({ templateID: "base" }),
    (error: unknown) => isFailure("TOO_MANY_REQUESTS", /queue full/)(error) && (error as Failure).retryAfterSeconds === 7,
  );
});

void test("an answer that is not this API's is a failure that shows its status", async () => {
  await using server = await serve((_, response) => response.writeHead(502).end("<html>bad gateway</html>"));
  await assert.rejects(
    new SvcClient({ baseURL: server.baseURL, apiKey: "k" }).get("i1"),
    (error: unknown) => error instanceof Failure && /502/.test(error.message),
  );
});

void test("an unreachable server is named in the failure", async () => {
  const { baseURL, ...server } = await serve((_, response) => response.end());
  await server[Symbol.asyncDispose]();
  await assert.rejects(
    new SvcClient({ baseURL, apiKey: "k" }).health(),
    isFailure("SERVER_UNREACHABLE", /127\.0\.0\.1:\d+ \(nothing listens there, ECONNREFUSED\)/),
  );
});

void test("requests to envd carry the sandbox, the port and the token", async () => {
  await using server = await serve((request, response) => {
    assert.equal(request.headers["x-svc-sandbox-id"], "i1");
    assert.equal(request.headers["x-svc-target-port"], "49983");
    assert.equal(request.headers["x-access-token"], "t");
    assert.equal(request.headers["x-api-key"], undefined);
    response.writeHead(200).end(JSON.stringify({ processes: [{ pid: 5, tag: "x", config: { cmd: "sleep", args: ["1"] } }] }));
  });
  const envd = new SvcClient({ baseURL: server.baseURL, apiKey: "k" }).envd({ sandboxID: "i1", envdAccessToken: "t" });
  assert.deepEqual(await envd.processes(), [{ pid: 5, tag: "x", cmd: "sleep", args: ["1"] }]);
  assert.equal(server.seen[0]?.url, "/proxy/process.Process/List");
  envd.close();
});
