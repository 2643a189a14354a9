// The first message of a TLS connection: its server name and protocols are read from whole, split and damaged bytes.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";
import { connect } from "node:tls";
import fc from "fast-check";
import { readHello } from "../src/intercept/hello.ts";

/** Returns the first bytes that a real client sends. */
async function helloOf(options: { servername?: string; ALPNProtocols?: string[] }): Promise<Buffer> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  const client = connect({ host: "127.0.0.1", port, ...options });
  client.on("error", () => {});
  const [socket] = (await once(server, "connection")) as [import("node:net").Socket];
  const [bytes] = (await once(socket, "data")) as [Buffer];
  client.destroy();
  socket.destroy();
  server.close();
  return bytes;
}

void test("name and protocols of a real client are read, however its bytes are split", async () => {
  const bytes = await helloOf({ servername: "api.example.com", ALPNProtocols: ["h2", "http/1.1"] });
  assert.deepEqual(readHello(bytes), { serverName: "api.example.com", protocols: ["h2", "http/1.1"] });
  for (let length = 0; length < bytes.length; length++) assert.equal(readHello(bytes.subarray(0, length)), "more");
  // The message in two records.
  const body = bytes.subarray(5);
  const record = (part: Buffer) => Buffer.concat([Buffer.from([22, 3, 1, part.length >> 8, part.length & 0xff]), part]);
  const split = Buffer.concat([record(body.subarray(0, 3)), record(body.subarray(3, 100)), record(body.subarray(100))]);
  assert.deepEqual(readHello(split), { serverName: "api.example.com", protocols: ["h2", "http/1.1"] });
});

void test("a client without a server name has none, and other protocols are not TLS", async () => {
  assert.deepEqual(readHello(await helloOf({})), { serverName: undefined, protocols: [] });
  for (const text of ["GET / HTTP/1.1\r\n\r\n", "SSH-2.0-OpenSSH\r\n", "\x16\x02\x00\x00\x05hello", "\x16\x03\x01\x00\x05\x02\x00\x00\x01x"])
    assert.equal(readHello(Buffer.from(text, "latin1")), "other", text);
});

void test("no damaged bytes throw or are read as more than they are", async () => {
  const bytes = await helloOf({ servername: "api.example.com", ALPNProtocols: ["h2"] });
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(bytes.length - 1), fc.integer({ min: 0, max: 255 })), { maxLength: 8 }), fc.nat(bytes.length), (changes, length) => {
      const damaged = Buffer.from(bytes);
      for (const [at, value] of changes) damaged[at] = value;
      const read = readHello(damaged.subarray(0, length));
      if (typeof read !== "string" && read.serverName !== undefined) assert.match(read.serverName, /^[a-z0-9_.-]+$/);
    }),
    { numRuns: 2000 },
  );
});
