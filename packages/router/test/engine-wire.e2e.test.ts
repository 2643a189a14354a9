// Engines whose answers come in odd pieces or end in odd ways: the client gets them whole, or an error.
import assert from "node:assert/strict";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { chat, openRouter, post } from "./stack.ts";

const ANSWER = JSON.stringify({ choices: [], usage: { prompt_tokens: 9, prompt_tokens_details: { cached_tokens: 4 } } });
const MODELS = JSON.stringify({ object: "list", data: [{ id: "demo", object: "model" }] });
const whole = (text: string) => `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(text)}\r\n\r\n${text}`;

/** `answer` gets each chat with the number of chats that came before it on the same connection. */
async function openEngine(answer: (socket: Socket, before: number) => void | Promise<void>) {
  const seen = { connections: 0, chats: 0 };
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    let text = "";
    let before = 0;
    sockets.add(socket);
    socket.on("error", () => {}).on("close", () => sockets.delete(socket));
    socket.on("data", (bytes) => {
      text += bytes.toString("latin1");
      for (;;) {
        const end = text.indexOf("\r\n\r\n");
        if (end < 0) return;
        const length = Number(/content-length: (\d+)/i.exec(text.slice(0, end))?.[1] ?? 0);
        if (text.length < end + 4 + length) return;
        const [line = ""] = text.split("\r\n");
        text = text.slice(end + 4 + length);
        if (line.startsWith("POST /v1/chat/completions ")) {
          seen.chats++;
          if (before === 0) seen.connections++;
          void answer(socket, before++);
        } else if (line.startsWith("GET /v1/models ")) socket.write(whole(MODELS));
        else socket.write("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    name: "odd",
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    seen,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

const ask = (url: string) => post(url, "/v1/chat/completions", chat("hello"));

void test("a stream that comes byte by byte, in chunks with extensions and trailers, reaches the client whole", async () => {
  const events = `data: {"text":"ü"}\n\ndata: ${ANSWER}\n\ndata: [DONE]\n\n`;
  await using engine = await openEngine(async (socket) => {
    const half = Buffer.from(events).subarray(0, 20);
    const rest = Buffer.from(events).subarray(20);
    const bytes = Buffer.concat([
      Buffer.from("HTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"),
      ...[Buffer.from(`${half.length.toString(16)};a=b\r\n`), half, Buffer.from(`\r\n${rest.length.toString(16).toUpperCase()}\r\n`), rest],
      Buffer.from("\r\n0\r\nx-of-the-engine: 1\r\n\r\n"),
    ]);
    for (let at = 0; at < bytes.length; at++) {
      socket.write(bytes.subarray(at, at + 1));
      await new Promise(setImmediate);
    }
  });
  await using router = await openRouter([engine]);
  for (let at = 0; at < 3; at++) {
    const { status, text } = await ask(router.url);
    assert.deepEqual([status, text], [200, events]);
  }
  assert.equal(engine.seen.connections, 1, "the connection is used again");
});

void test("a connection that the engine closes just when it is used again costs the client nothing", async () => {
  await using engine = await openEngine((socket, before) => {
    if (before > 0) socket.resetAndDestroy();
    else socket.write(whole(ANSWER));
  });
  await using router = await openRouter([engine]);
  for (let at = 0; at < 6; at++) assert.deepEqual(await ask(router.url).then(({ status, text }) => [status, text]), [200, ANSWER]);
  assert.ok(engine.seen.chats > 6, "no connection was used again");
});

void test("an answer without a length is whole when its connection ends, and what follows an answer does not reach the next client", async () => {
  let isSurplus = false;
  await using engine = await openEngine((socket) => {
    if (isSurplus) socket.write(`${whole(ANSWER)}${whole('{"of":"nobody"}')}`);
    else socket.end(`HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n${ANSWER}`);
  });
  await using router = await openRouter([engine]);
  for (let at = 0; at < 6; at++) {
    isSurplus = at >= 3;
    assert.deepEqual(await ask(router.url).then(({ status, text }) => [status, text]), [200, ANSWER]);
  }
});

void test("an answer that is shorter than its length, or whose chunks are malformed, ends with an error before the client has a part of it", async () => {
  let answer = "";
  await using engine = await openEngine(async (socket) => {
    socket.write(answer);
    await delay(50);
    socket.end();
  });
  await using router = await openRouter([engine], ["--router.circuit_failures=1000"]);
  for (const odd of [
    "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
    "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
    `HTTP/1.1 200 OK\r\nx: ${"y".repeat(100_000)}`,
  ]) {
    answer = odd;
    const { status, text } = await ask(router.url);
    assert.deepEqual([status, /"code":"([a-z_]+)"/.exec(text)?.[1]], [502, "engine_failed"], `${odd.slice(0, 60)}: ${text.slice(0, 200)}`);
  }
});
