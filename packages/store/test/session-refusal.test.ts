// The failures that a client reports for a master that does not exist, does not answer, or speaks another protocol.
import assert from "node:assert/strict";
import { createServer, type Socket } from "node:net";
import { test } from "node:test";
import { masterAddress } from "../src/client/session/address.ts";
import { encodeBody } from "../src/rpc/body.ts";
import { MAGIC, REQUEST_BYTES, RESPONSE_BYTES } from "../src/rpc/frame.ts";
import { operations } from "../src/rpc/operations.ts";
import { startMember } from "./member.ts";

async function listening(onConnection: (socket: Socket) => void): Promise<{ master: string } & AsyncDisposable> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    onConnection(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const master = `127.0.0.1:${(server.address() as { port: number }).port}`;
  return {
    master,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

void test("a client reports that no server answers at the master's address", async () => {
  const { master, ...server } = await listening(() => {});
  await server[Symbol.asyncDispose]();
  await assert.rejects(startMember({ master, joinMs: 300 }), new RegExp(`SERVER_UNREACHABLE: the store's master at ${master}`));
});

void test("a client reports a master that does not answer, and a server of another protocol", async () => {
  await using silent = await listening(() => {});
  await assert.rejects(startMember({ master: silent.master, joinMs: 300, callMs: 300 }), /(TIMED_OUT|SERVER_UNREACHABLE): .*300 ms/);
  await using other = await listening((socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
  await assert.rejects(startMember({ master: other.master, joinMs: 300 }), /SERVER_UNREACHABLE: what answers there does not speak the store's RPC/);
});

void test("a client refuses a master of another version, and names both", async () => {
  await using server = await listening((socket) =>
    socket.on("data", (bytes) => {
      const { result, resultHash } = operations.ServiceReady;
      const body = encodeBody(result, resultHash, { ok: true, value: "1.9.0" }, result.literal);
      const head = Buffer.alloc(RESPONSE_BYTES);
      head[0] = MAGIC;
      head.writeUInt32LE(bytes.readUInt32LE(4), 4);
      head.writeUInt32LE(body.length, 8);
      assert.equal(bytes.length, REQUEST_BYTES);
      socket.write(Buffer.concat([head, body]));
    }),
  );
  await assert.rejects(startMember({ master: server.master, joinMs: 300 }), /HOST_UNSUITABLE: .*version "1\.9\.0", this client 2\.0\.0/);
});

void test("the master's address is HOST, HOST:PORT or [IPv6]:PORT", () => {
  assert.deepEqual(masterAddress("store.local"), { host: "store.local", port: 50_051 });
  assert.deepEqual(masterAddress("10.0.0.1:5"), { host: "10.0.0.1", port: 5 });
  assert.deepEqual(masterAddress("[::1]:70"), { host: "::1", port: 70 });
  for (const wrong of ["", "a b", "host:", "host:0", "host:65536", "::1", "etcd://x:1"]) assert.throws(() => masterAddress(wrong), /expected HOST:PORT, got/);
});
