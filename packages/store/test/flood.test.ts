// The metadata server under clients that try to exhaust it: others are answered, and its memory stays within the bound of its guide.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { startMetadataServer, type TestServer } from "./server.ts";

const MIB = 1 << 20;
/** The memory of an idle server, and what Node allocates before a garbage collection. */
const BASE_BYTES = 256 * MIB;
/** Fifty times the p99 bound of a health check. */
const ANSWER_MS = 5000;

const residentBytes = (server: TestServer) => Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${server.pid}/status`, "utf8"))?.[1]) * 1024;

async function isHealthy(server: TestServer): Promise<void> {
  const response = await fetch(server.url.replace("/metadata", "/health"), { signal: AbortSignal.timeout(ANSWER_MS), headers: { connection: "close" } });
  assert.equal(await response.text(), "OK");
}

type Flood = { readonly sockets: Socket[] } & Disposable;

async function flood(server: TestServer, count: number, open: (socket: Socket, number: number) => void): Promise<Flood> {
  const port = Number(new URL(server.url).port);
  const sockets: Socket[] = [];
  for (let from = 0; from < count; from += 200)
    await Promise.all(
      Array.from({ length: Math.min(200, count - from) }, (_, i) => {
        const socket = connect(port, "127.0.0.1").on("error", () => socket.destroy());
        sockets.push(socket);
        return new Promise<void>((resolve) => {
          socket.once("connect", () => {
            open(socket, from + i);
            resolve();
          });
          socket.once("close", () => resolve());
        });
      }),
    );
  return {
    sockets,
    [Symbol.dispose]() {
      for (const socket of sockets) socket.destroy();
    },
  };
}

void test("2,000 clients that send their heads byte by byte delay no other client", async () => {
  await using server = await startMetadataServer();
  using slow = await flood(server, 2000, (socket) => socket.write("GET /metadata?key=x HTTP/1.1\r\n"));
  for (let round = 0; round < 20; round++) {
    for (const socket of slow.sockets) socket.write("X");
    await isHealthy(server);
    assert.equal((await server.fetch("k", { method: "PUT", body: String(round) })).status, 200);
  }
  assert.ok(residentBytes(server) < BASE_BYTES + 4096 * 80 * 1024);
});

void test("clients that send half of a large value each occupy no more together than the setting allows, and give way to one that sends its own", async () => {
  const limits = ["--metadata.max_buffered_bytes=33554432", "--durability=memory"];
  await using server = await startMetadataServer(limits);
  const value = "v".repeat(8 * MIB);
  using _ = await flood(server, 20, (socket) => {
    socket.write(`PUT /metadata?key=slow HTTP/1.1\r\nHost: x\r\nContent-Length: ${8 * MIB}\r\n\r\n`);
    socket.write(value.slice(0, 4 * MIB));
  });
  await isHealthy(server);
  assert.equal((await server.fetch("quick", { method: "PUT", body: "small values do not wait" })).status, 200);
  // Each slow client may keep its memory for two seconds while others wait.
  assert.equal((await server.fetch("large", { method: "PUT", body: value, signal: AbortSignal.timeout(300_000) })).status, 200);
  assert.ok(residentBytes(server) < BASE_BYTES + 3 * 32 * MIB + 16 * MIB, `${residentBytes(server) / MIB} MiB`);
});

void test("clients that do not read large values which are replaced meanwhile keep few of them in memory", async () => {
  await using server = await startMetadataServer(["--metadata.max_buffered_bytes=33554432", "--durability=memory"]);
  for (let round = 0; round < 10; round++) {
    assert.equal((await server.fetch("k", { method: "PUT", body: String(round).padEnd(8 * MIB) })).status, 200);
    await flood(server, 2, (socket) => {
      socket.write("GET /metadata?key=k HTTP/1.1\r\nHost: x\r\n\r\n");
      socket.pause();
    });
  }
  await isHealthy(server);
  assert.ok(residentBytes(server) < BASE_BYTES + 3 * 32 * MIB + 16 * MIB, `${residentBytes(server) / MIB} MiB`);
});

void test("at its maximum of connections, the server takes a new one and ends the one that has waited longest", async () => {
  await using server = await startMetadataServer(["--metadata.max_connections=50"]);
  using slow = await flood(server, 60, (socket) => socket.write("GET /"));
  await isHealthy(server);
  const metrics = await (await fetch(server.url.replace("/metadata", "/metrics"))).text();
  assert.ok(Number(/^svc_metadata_connections (\d+)$/m.exec(metrics)?.[1]) <= 50);
  assert.equal(slow.sockets.at(-1)?.destroyed, false, "the newest slow one is not the one to go");
});

void test("one connection that sends requests without end, and a concurrent listing, delay no other client", async () => {
  await using server = await startMetadataServer(["--durability=memory"]);
  const puts = Array.from({ length: 1000 }, (_, i) => `PUT /metadata?key=p/${i} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1`).join("");
  const request = "GET /metadata?key=p/1 HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000);
  using _ = await flood(server, 1, (socket) => {
    socket.write(puts);
    const more = () => {
      while (!socket.destroyed && socket.write(request));
    };
    socket.on("drain", more).resume();
    more();
  });
  for (let round = 0; round < 30; round++) await isHealthy(server);
  const list = (await (await fetch(`${server.url}?prefix=p/`)).json()) as Record<string, string>;
  assert.equal(Object.keys(list).length, 1000);
});
