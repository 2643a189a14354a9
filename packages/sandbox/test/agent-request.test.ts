// The node bounds the size, time and order of a sandbox's answers; a server in envd's place violates each bound.
import assert from "node:assert/strict";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fetchProcesses } from "../src/agent/process-log.ts";
import { requestAgent } from "../src/agent/request.ts";
import type { RuntimeHandle } from "../src/runtime/runtime.ts";

const MIB = 1024 * 1024;
let count = 0;

/** A program in envd's place, with the number of bytes it wrote and its address. */
async function guest(answer: (socket: Socket) => void) {
  const path = join(tmpdir(), `svc-guest-${process.pid}-${count++}.sock`);
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => {});
    socket.once("data", () => answer(socket));
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  return {
    handle: { endpoint: { kind: "unix", path } } as RuntimeHandle,
    bytesWritten: () => sockets.reduce((sum, { bytesWritten }) => sum + bytesWritten, 0),
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Writes without end, as fast as the other side reads. */
function endless(socket: Socket, head: string, piece: Buffer): void {
  socket.write(head);
  const go = () => {
    while (!socket.destroyed && socket.write(piece));
    if (!socket.destroyed) socket.once("drain", go);
  };
  go();
}

const ask = { method: "POST", path: "/init", boundMs: 60_000, maxBytes: 64 * 1024 } as const;

void test("the node reads an answer completely, with its headers", async () => {
  await using envd = await guest((socket) => socket.end("HTTP/1.1 401 Unauthorized\r\nx-some: thing\r\ncontent-length: 2\r\n\r\nno"));
  const { code, headers, body } = await requestAgent(envd.handle, ask);
  assert.deepEqual([code, headers["x-some"], body.toString()], [401, "thing", "no"]);
});

for (const [what, head, piece] of [
  ["a body without end", "HTTP/1.1 200 OK\r\ncontent-length: 4000000000\r\n\r\n", Buffer.alloc(64 * 1024, "x")],
  ["chunks of one byte without end", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", Buffer.from("1\r\nx\r\n".repeat(8192))],
  ["interim answers without end", "", Buffer.from("HTTP/1.1 100 Continue\r\n\r\n".repeat(2048))],
  ["a head without end", "HTTP/1.1 200 OK\r\n", Buffer.from("x-line: value\r\n".repeat(4096))],
] as const) {
  void test(`a sandbox that answers its node with ${what} is cut off after a small part`, async () => {
    await using envd = await guest((socket) => endless(socket, head, piece));
    await assert.rejects(requestAgent(envd.handle, ask));
    // The kernel's socket buffers add to this.
    assert.ok(envd.bytesWritten() < 8 * MIB, `${envd.bytesWritten()} bytes were taken`);
  });
}

void test("a page of processes with half a million brackets next to its entries is not parsed", async () => {
  const body = `{"run":"a","entries":[],"more":[${"[],".repeat(MIB / 4)}1]}`;
  await using envd = await guest((socket) => socket.end(`HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n${body}`));
  assert.equal(await fetchProcesses(envd.handle, undefined, { run: "", seq: 0 }, 60_000), undefined);
});

void test("a full page of processes, with every character of a command escaped, is accepted", async () => {
  const entry = (seq: number) => ({ seq, at: 1, ended: true, pid: 7, user: "user", command: '"\\[{,:'.repeat(100), cut: true, status: "exit status 0" });
  const body = JSON.stringify({ run: "a", entries: Array.from({ length: 1000 }, (_, index) => entry(index + 1)) });
  await using envd = await guest((socket) => socket.end(`HTTP/1.1 200 OK\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`));
  assert.equal((await fetchProcesses(envd.handle, undefined, { run: "", seq: 0 }, 60_000))?.entries.length, 1000);
});
