// Abusive connections to the HTTP server: pipelined requests, heads in pieces, crowds. Others are served meanwhile.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { HttpServer } from "../src/http/server.ts";

/** Starts a server that answers each request with its path, at once or one tick later. */
async function startServer(isLate = false, maxConnections = 100) {
  let answered = 0;
  const server = new HttpServer({
    maxBodyBytes: 1024,
    bodySetting: "none",
    maxBufferedBytes: 1024,
    maxConnections,
    answer({ target }) {
      const give = () => {
        answered++;
        return { type: "text/plain", body: `<${target}>` };
      };
      return isLate ? new Promise(setImmediate).then(give) : give();
    },
    refuse: (error) => ({ status: 400, type: "text/plain", body: String(error) }),
    observe: () => undefined,
  });
  await server.listen({ host: "127.0.0.1", port: 0 });
  const sockets = new Set<{ destroy(): void }>();
  return {
    answered: () => answered,
    open() {
      const socket = connect({ host: "127.0.0.1", port: server.port });
      sockets.add(socket.on("error", () => {}));
      let received = "";
      socket.setEncoding("latin1").on("data", (text) => (received += text));
      return { socket, received: () => received, paths: () => [...received.matchAll(/<\/(\d+)>/g)].map(([, at]) => Number(at)) };
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await server.close();
    },
  };
}

const ahead = (count: number) => Array.from({ length: count }, (_, at) => `GET /${at} HTTP/1.1\r\nHost: a\r\n\r\n`).join("");

for (const isLate of [false, true])
  void test(`pipelined requests are all answered, in order, ${isLate ? "late" : "at once"}`, async () => {
    await using server = await startServer(isLate);
    for (const count of [1, 31, 32, 33, 256, 300, 1000]) {
      const { socket, paths } = server.open();
      socket.write(ahead(count));
      await until(`${count} answers`, () => (paths().length >= count ? true : undefined), 5);
      assert.deepEqual(
        paths(),
        Array.from({ length: count }, (_, at) => at),
      );
    }
  });

void test("one request is answered among connections that never stop pipelining", async () => {
  await using server = await startServer();
  const each = 2000;
  for (let connection = 0; connection < 8; connection++) server.open().socket.write(ahead(each));
  const { socket, paths } = server.open();
  socket.write(ahead(1));
  await until("the one is answered", () => (paths().length === 1 ? true : undefined), 1);
  assert.ok(server.answered() < each, `${server.answered()} of the others' requests came before it`);
});

void test("a head that comes byte by byte is answered, and so is the next one on its connection", async () => {
  await using server = await startServer();
  const { socket, paths } = server.open();
  socket.setNoDelay(true);
  for (let round = 1; round <= 2; round++) {
    for (const byte of ahead(1)) {
      socket.write(byte);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    await until("it is answered", () => (paths().length === round ? true : undefined), 5);
  }
});

void test("when one client has too many unfinished heads the oldest is refused, and whole ones are answered", async () => {
  await using server = await startServer(false, 4096);
  const slow = Array.from({ length: 2100 }, () => server.open());
  for (const { socket } of slow) socket.write("GET / HTTP/1.1\r\n");
  await until("the first are refused", () => (slow.filter(({ received }) => received().startsWith("HTTP/1.1 408")).length >= 52 ? true : undefined));
  const { socket, paths } = server.open();
  socket.write(ahead(1));
  await until("a whole one is answered", () => (paths().length === 1 ? true : undefined));
  slow[2099]?.socket.write(`Host: a\r\n\r\n`);
  await until("the last of the slow ones is answered", () => (slow[2099]?.received().includes("200 OK") ? true : undefined));
});
