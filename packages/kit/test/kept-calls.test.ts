// Calls between servers of a deployment: over kept connections, which are not used again once their server is lost.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { test } from "node:test";
import { NOT_CONNECTED, openKeptCalls } from "../src/kept-calls.ts";

async function listening(onRequest: Parameters<typeof createServer>[1] & {}): Promise<AsyncDisposable & { server: Server; url: string; sockets: Set<Socket> }> {
  const server = createServer(onRequest);
  const sockets = new Set<Socket>();
  server.on("connection", (socket) => sockets.add(socket));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    server,
    sockets,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
    },
  };
}

const sending = (url: string, more: { body?: string; signal?: AbortSignal } = {}) => ({
  url: `${url}/there`,
  method: more.body === undefined ? "GET" : "POST",
  headers: { "x-said": "it" },
  body: more.body,
  signal: more.signal ?? new AbortController().signal,
});

void test("requests one after the other take the same connection, until their server counts as lost", async () => {
  await using at = await listening((request, response) => {
    let text = "";
    request.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk;
    });
    request.on("end", () => response.writeHead(201, { "x-first": "a", "set-cookie": ["b", "c"] }).end(`${request.headers["x-said"]} ${text}`));
  });
  const calls = openKeptCalls();
  for (const body of ["é", "two", "three"]) {
    const { status, headers, text } = await calls.send(sending(at.url, { body }));
    assert.deepEqual([status, headers.get("x-first"), headers.getSetCookie(), text], [201, "a", ["b", "c"], `it ${body}`]);
  }
  assert.equal(at.sockets.size, 1);
  calls.drop(at.url);
  await calls.send(sending(at.url));
  assert.equal(at.sockets.size, 2);
  calls.close();
});

void test("a connection that was in use when its server was lost is not used again", async () => {
  const held: (() => void)[] = [];
  await using at = await listening((_request, response) => void held.push(() => response.end("late")));
  const calls = openKeptCalls();
  const pending = calls.send(sending(at.url));
  await once(at.server, "request");
  calls.drop(at.url);
  held.shift()?.();
  assert.equal((await pending).text, "late");
  const next = calls.send(sending(at.url));
  await once(at.server, "request");
  held.shift()?.();
  await next;
  assert.equal(at.sockets.size, 2);
  calls.close();
});

void test("a request that never left is told from one that its server may have carried out", async () => {
  let url = "";
  {
    await using gone = await listening((_request, response) => void response.end());
    ({ url } = gone);
  }
  const calls = openKeptCalls();
  await assert.rejects(calls.send(sending(url)), { code: NOT_CONNECTED });
  await using breaks = await listening((request) => request.socket.destroy());
  await assert.rejects(calls.send(sending(breaks.url)), { code: "ECONNRESET" });
  await using half = await listening((request, response) => {
    response.writeHead(200, { "content-length": "10" }).write("half");
    setImmediate(() => request.socket.destroy());
  });
  await assert.rejects(calls.send(sending(half.url)), { code: "ECONNRESET" });
  await using silent = await listening(() => {});
  const abort = new AbortController();
  const pending = calls.send(sending(silent.url, { signal: abort.signal }));
  await once(silent.server, "request");
  abort.abort();
  await assert.rejects(pending, { name: "AbortError" });
  calls.close();
});
