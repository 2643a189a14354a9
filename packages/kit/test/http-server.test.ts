// The HTTP server: memory of large bodies and answers, full servers, clients that leave, and its end.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { connect, type Socket } from "node:net";
import { Readable } from "node:stream";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import type { HttpOptions } from "../src/http/exchange.ts";
import { HttpServer } from "../src/http/server.ts";

const MIB = 1 << 20;

/** Starts a server that answers with the length of the body, or, at /SIZE, with that many bytes. */
async function startServer(options: Partial<HttpOptions> = {}) {
  const server = new HttpServer({
    maxBodyBytes: 4 * MIB,
    bodySetting: "none",
    maxBufferedBytes: 8 * MIB,
    maxConnections: 100,
    answer: ({ target, body }) => ({ type: "text/plain", body: target === "/" ? `<${body.length}>` : Buffer.alloc(Number(target.slice(1)), "v") }),
    refuse: (error) => ({ status: 503, type: "text/plain", body: String(error) }),
    observe: () => undefined,
    ...options,
  });
  await server.listen({ host: "127.0.0.1", port: 0 });
  const sockets: Socket[] = [];
  return {
    server,
    open(text = "") {
      const socket = connect({ host: "127.0.0.1", port: server.port });
      sockets.push(socket.on("error", () => {}));
      let received = "";
      socket.setEncoding("latin1").on("data", (piece) => (received += piece));
      if (text !== "") socket.write(text);
      return { socket, received: () => received };
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await server.close();
    },
  };
}

const put = (bytes: number, more = "") => `PUT / HTTP/1.1\r\nHost: a\r\n${more}Content-Length: ${bytes}\r\n\r\n`;
const get = (target = "/") => `GET ${target} HTTP/1.1\r\nHost: a\r\n\r\n`;

void test("a body that waits for memory is read once a slow one has given way, and then the server asks for it", async () => {
  await using own = await startServer();
  const slow = [own.open(put(4 * MIB)), own.open(put(4 * MIB))];
  await until("both have memory", () => (own.server.memory.grantedBytes === 8 * MIB ? true : undefined));
  const quick = own.open(put(MIB, "Expect: 100-continue\r\n"));
  await until("it may send its body", () => (quick.received().includes("100 Continue") ? true : undefined));
  assert.ok(
    slow.some(({ received }) => received().startsWith("HTTP/1.1 503")),
    "a slow one was refused",
  );
  quick.socket.write("x".repeat(MIB));
  await until("it is answered", () => (quick.received().includes(`<${MIB}>`) ? true : undefined));
});

void test("clients that do not read large answers take no more memory than the bound, and lose their connections while others wait", async () => {
  await using own = await startServer();
  const deaf = Array.from({ length: 6 }, () => {
    const { socket } = own.open(get(`/${4 * MIB}`));
    return socket.pause();
  });
  await until("the memory is taken", () => (own.server.memory.grantedBytes === 8 * MIB ? true : undefined));
  const reader = own.open(get(`/${4 * MIB}`));
  await until("one that reads is served", () => (reader.received().length > 4 * MIB ? true : undefined));
  assert.ok(own.server.memory.grantedBytes <= 8 * MIB);
  assert.equal(deaf.length, 6);
});

void test("a full server closes the idle connection that waited longest, and refuses a new one while it works on all of them", async () => {
  const answers: (() => void)[] = [];
  await using own = await startServer({
    maxConnections: 2,
    answer: () => new Promise((resolve) => answers.push(() => resolve({ type: "text/plain", body: "late" }))),
  });
  const first = own.open();
  const closed = new Promise((resolve) => first.socket.once("close", resolve));
  await until("it is there", () => (own.server.connections === 1 ? true : undefined));
  const busy = [own.open(get()), own.open(get())];
  await closed;
  await until("both are worked on", () => (answers.length === 2 ? true : undefined));
  const refused = own.open(get());
  await until("the next is refused", () => (refused.received().startsWith("HTTP/1.1 503") ? true : undefined));
  for (const answer of answers) answer();
  await until("the others are answered", () => (busy.every(({ received }) => received().endsWith("late")) ? true : undefined));
});

void test("a client that ends its side after several requests gets all answers, and then the end", async () => {
  await using own = await startServer({
    answer: async ({ target }) => {
      await new Promise(setImmediate);
      return { type: "text/plain", body: `<${target}>` };
    },
  });
  const { socket, received } = own.open();
  const ended = new Promise((resolve) => socket.once("close", resolve));
  socket.end(Array.from({ length: 100 }, (_, at) => get(`/${at}`)).join(""));
  await ended;
  assert.equal(received().split("HTTP/1.1 200 OK").length - 1, 100);
});

void test("a stream ends when its client leaves, and one without a size ends with the connection", async () => {
  const sources: Readable[] = [];
  await using own = await startServer({
    answer({ target }) {
      const source =
        target === "/short"
          ? Readable.from([Buffer.from("all")])
          : new Readable({ read: (bytes) => void setImmediate(() => sources[1]?.push(Buffer.alloc(bytes))) });
      sources.push(source);
      return { type: "text/plain", body: "", stream: { source } };
    },
  });
  const short = own.open(get("/short"));
  await new Promise((resolve) => short.socket.once("close", resolve));
  assert.match(short.received(), /\r\nConnection: close\r\n\r\nall$/);
  const { socket } = own.open(get("/endless"));
  await until("it is streamed", () => sources[1]);
  socket.destroy();
  await until("the source is closed", () => (sources[1]?.destroyed === true ? true : undefined));
});

void test("a server that closes ends idle connections, and finishes the answer that is under way", async () => {
  let finish = () => {};
  const own = await startServer({ answer: () => new Promise((resolve) => (finish = () => resolve({ type: "text/plain", body: "late" }))) });
  const idle = own.open();
  const busy = own.open(get());
  await until("both are there", () => (own.server.connections === 2 ? true : undefined));
  const idleClosed = new Promise((resolve) => idle.socket.once("close", resolve));
  await new Promise((resolve) => setTimeout(resolve, 50));
  const closed = own.server.close();
  await idleClosed;
  finish();
  await closed;
  await until("it is answered", () => (busy.received().endsWith("late") ? true : undefined));
  assert.match(busy.received(), /\r\nConnection: close\r\n/);
});

void test("a connection goes to another server with its first request below the handed path, whole, and with all that follows", async () => {
  const other = createServer((request, response) => {
    let body = "";
    request.on("data", (piece: Buffer) => (body += piece.toString()));
    request.on("end", () => response.end(`${request.method} ${request.url} from ${request.socket.remoteAddress}: ${body.length};`));
  });
  await using own = await startServer({ handsOver: { path: "/console", take: (connection) => void other.emit("connection", connection) } });
  const body = "b".repeat(200_000);
  const client = own.open(`${get("/5")}${get("/console")}POST /console/x?y HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n\r\n`);
  client.socket.write(body);
  await until("all are answered", () => (client.received().includes(": 200000;") ? true : undefined));
  assert.match(client.received(), /vvvvv.*GET \/console from 127\.0\.0\.1: 0;.*POST \/console\/x\?y from 127\.0\.0\.1: 200000;/s);
  assert.equal(own.server.connections, 1);
  const beside = own.open(get("/7"));
  await until("others are answered here", () => (beside.received().includes("vvvvvvv") ? true : undefined));
  client.socket.destroy();
  await until("the connection is gone", () => (own.server.connections === 1 ? true : undefined));
});

void test("a client that pauses while the other server sends gets every byte, and the connection ends with the answer", async () => {
  const other = createServer((_request, response) => void response.setHeader("connection", "close").end(Buffer.alloc(8 * MIB, "z")));
  await using own = await startServer({ handsOver: { path: "/console", take: (connection) => void other.emit("connection", connection) } });
  const socket = connect({ host: "127.0.0.1", port: own.server.port });
  socket.write(get("/console/big"));
  let bytes = 0;
  let pauses = 0;
  socket.on("data", (piece: Buffer) => {
    bytes += piece.length;
    if (++pauses % 8 !== 0) return;
    socket.pause();
    setImmediate(() => socket.resume());
  });
  await new Promise((resolve) => socket.once("end", resolve));
  assert.ok(bytes > 8 * MIB, String(bytes));
  await until("the connection is gone", () => (own.server.connections === 0 ? true : undefined));
});
