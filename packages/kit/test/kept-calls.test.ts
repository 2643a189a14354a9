// Calls between servers of a deployment reuse connections, except those of a server that is lost.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { type AddressInfo, createServer as createRawServer, type Socket } from "node:net";
import { test } from "node:test";
import { NOT_CONNECTED, openKeptCalls } from "../src/kept-calls.ts";

const BOUND_MS = 60_000;

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

async function rawServer(onConnection: (socket: Socket) => void): Promise<Disposable & { url: string; sockets: Socket[] }> {
  const sockets: Socket[] = [];
  const server = createRawServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => {});
    onConnection(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    sockets,
    [Symbol.dispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

const sending = (url: string, more: { body?: string; signal?: AbortSignal } = {}) => ({
  url: `${url}/there`,
  method: more.body === undefined ? "GET" : "POST",
  headers: { "x-said": "it" },
  body: more.body,
  signals: more.signal === undefined ? [] : [more.signal],
  timeoutMs: BOUND_MS,
});

void test("sequential requests use the same connection until their server counts as lost", async () => {
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

void test("a URL with characters that a request line may not contain is refused", async () => {
  const calls = openKeptCalls();
  for (const url of ["http://127.0.0.1:1/x\u010d\u010aHost: evil", "http://127.0.0.1:1/a b", "http://u:p@127.0.0.1:1/", "https://127.0.0.1:1/"])
    await assert.rejects(calls.send({ ...sending(""), url }), { name: "TypeError", message: /expected http:\/\/HOST:PORT/ });
  calls.close();
});

void test("a call that a lost server never answers ends when all connections are closed", async () => {
  await using at = await listening(() => {});
  const calls = openKeptCalls();
  const pending = calls.send(sending(at.url));
  await once(at.server, "request");
  calls.drop(at.url);
  calls.close();
  await assert.rejects(pending, { name: "AbortError" });
});

void test("the time limit of connecting does not limit the answer", async () => {
  await using at = await listening((_request, response) => void setTimeout(() => response.end("late"), 400));
  const calls = openKeptCalls({ connectMs: 100 });
  assert.equal((await calls.send(sending(at.url))).text, "late");
  calls.close();
});

void test("the server receives one Host header: the caller's, or else its own address", async () => {
  await using at = await listening(({ rawHeaders }, response) =>
    response.end(rawHeaders.filter((_, index) => /^host$/i.test(rawHeaders[index - 1] ?? "")).join()),
  );
  const calls = openKeptCalls();
  assert.equal((await calls.send(sending(at.url))).text, at.url.replace("http://", ""));
  assert.equal((await calls.send({ ...sending(at.url), headers: { Host: "asked.example" } })).text, "asked.example");
  calls.close();
});

void test("a connection that was in use when its server was lost is not reused", async () => {
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

void test("a request that was never sent is distinguished from one that the server may have executed", async () => {
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

void test("a request that a kept connection could not carry is sent on another", async () => {
  await using at = await listening((_request, response) => void response.end("there"));
  const calls = openKeptCalls();
  for (let round = 0; round < 2; round++) {
    assert.equal((await calls.send(sending(at.url, { body: "once" }))).text, "there");
    assert.equal(at.sockets.size, round + 1);
    // In this tick of the event loop the client cannot notice the reset.
    for (const socket of at.sockets) socket.resetAndDestroy();
  }
  await using gone = await listening((_request, response) => void response.end("there"));
  await calls.send(sending(gone.url));
  for (const socket of gone.sockets) socket.resetAndDestroy();
  gone.server.close();
  await assert.rejects(calls.send(sending(gone.url)), { code: NOT_CONNECTED });
  calls.close();
});

void test("answers in pieces, in chunks, after an interim response and up to the end of the connection arrive complete", async () => {
  const answers = [
    ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwh", "ole"],
    ["HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 200", " OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nwho\r\n2", "\r\nle\r\n0\r\n\r\n"],
    ["HTTP/1.1 200 OK\r\n\r\nwho", "le"],
  ];
  using at = await rawServer((socket) => {
    socket.on("data", async () => {
      const pieces = answers.shift() ?? [];
      const isLast = answers.length === 0;
      for (const piece of pieces) {
        socket.write(piece);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      if (isLast) socket.end();
    });
  });
  const calls = openKeptCalls();
  for (let index = 0; index < 3; index++) assert.equal((await calls.send(sending(at.url))).text, "whole");
  assert.equal(at.sockets.length, 1);
  calls.close();
});

void test("a malformed answer, or one that comes before the request was read, ends its connection", async () => {
  let answered = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n";
  using at = await rawServer((socket) => {
    socket.once("data", () => {
      socket.write(answered);
      socket.pause();
    });
  });
  const calls = openKeptCalls();
  await assert.rejects(calls.send(sending(at.url)), /its answer is malformed: it has Content-Length more than once/);
  answered = "HTTP/1.1 413 Payload Too Large\r\nContent-Length: 2\r\n\r\nno";
  assert.equal((await calls.send(sending(at.url, { body: "x".repeat(16 * 1024 * 1024) }))).status, 413);
  assert.equal((await calls.send(sending(at.url))).status, 413);
  assert.equal(at.sockets.length, 3);
  calls.close();
});

void test("an invalid request is refused, and a late or aborted one is not waited for", async () => {
  await using silent = await listening(() => {});
  const calls = openKeptCalls();
  await assert.rejects(calls.send({ ...sending(silent.url), headers: { "x-said": "a\r\nx-other: b" } }), TypeError);
  await assert.rejects(calls.send(sending(silent.url.replace("http:", "https:"))), TypeError);
  await assert.rejects(calls.send({ ...sending(silent.url), timeoutMs: 100 }), { name: "TIMED_OUT" });
  await assert.rejects(calls.send(sending(silent.url, { signal: AbortSignal.abort() })), { code: NOT_CONNECTED });
  const pending = calls.send(sending(silent.url));
  await once(silent.server, "request");
  calls.close();
  await assert.rejects(pending, { name: "AbortError" });
});
