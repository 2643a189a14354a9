// gRPC through the node's port with TLS to a server inside a sandbox: unary and streaming calls, trailers, statuses, credentials and ends.
import assert from "node:assert/strict";
import { test } from "node:test";
import grpc from "@grpc/grpc-js";
import type { ProxyEntry } from "../src/records/directory.ts";
import { deploymentKey } from "./proxy-fixture.ts";
import { DOMAIN, openTlsFixture, type TlsFixture } from "./tls-fixture.ts";

const bytes = (value: Buffer) => value;
const method = (path: string, isStream: boolean) => ({
  path,
  requestStream: isStream,
  responseStream: isStream,
  requestSerialize: bytes,
  requestDeserialize: bytes,
  responseSerialize: bytes,
  responseDeserialize: bytes,
});
const echo = { unary: method("/test.Echo/Unary", false), both: method("/test.Echo/Both", true), wait: method("/test.Echo/Wait", true) };

/** Starts a gRPC server at the sandbox's address; it answers with what it was sent, and records the metadata of its calls. */
async function serveEcho(sandbox: ProxyEntry & { host: string }) {
  const seen: grpc.Metadata[] = [];
  const server = new grpc.Server();
  const trailers = new grpc.Metadata();
  trailers.set("x-sum", "42");
  server.addService(echo as never, {
    unary: (call: grpc.ServerUnaryCall<Buffer, Buffer>, answer: grpc.sendUnaryData<Buffer>) => {
      seen.push(call.metadata);
      if (call.request.toString() === "fail") answer({ code: grpc.status.NOT_FOUND, details: "no such thing: ä" });
      else answer(null, call.request, trailers);
    },
    both: (call: grpc.ServerDuplexStream<Buffer, Buffer>) => {
      call.on("data", (piece: Buffer) => call.write(piece));
      call.on("end", () => call.end(trailers));
    },
    wait: (call: grpc.ServerDuplexStream<Buffer, Buffer>) => void call.write(Buffer.from("begun")),
  });
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync(`${sandbox.host}:0`, grpc.ServerCredentials.createInsecure(), (error, bound) => (error === null ? resolve(bound) : reject(error))),
  );
  return { port, seen, [Symbol.dispose]: () => server.forceShutdown() };
}

function clientOf(fixture: TlsFixture, name: string): grpc.Client & Disposable {
  const options = { "grpc.ssl_target_name_override": name, "grpc.default_authority": name };
  const client = new grpc.Client(`127.0.0.1:${fixture.port}`, grpc.credentials.createSsl(Buffer.from(fixture.ca)), options);
  return Object.assign(client, { [Symbol.dispose]: () => client.close() });
}

function unary(client: grpc.Client, text: string, metadata = new grpc.Metadata()) {
  return new Promise<{ text?: string; trailers: Record<string, grpc.MetadataValue>; status: grpc.StatusObject }>((resolve) => {
    let said: string | undefined;
    const call = client.makeUnaryRequest(echo.unary.path, bytes, bytes, Buffer.from(text), metadata, (_error, value) => (said = value?.toString()));
    call.on("status", (status) => setImmediate(() => resolve({ ...(said === undefined ? {} : { text: said }), trailers: status.metadata.getMap(), status })));
  });
}

void test("a gRPC client reaches a gRPC server inside a sandbox, with trailers, statuses and 200 calls at once", async () => {
  await using fixture = await openTlsFixture();
  const sandbox = fixture.sandbox();
  using server = await serveEcho(sandbox);
  using client = clientOf(fixture, `${server.port}-${sandbox.sandboxID}.${DOMAIN}`);
  const one = await unary(client, "hello");
  assert.deepEqual([one.text, one.trailers["x-sum"], one.status.code], ["hello", "42", grpc.status.OK]);
  const failed = await unary(client, "fail");
  assert.deepEqual([failed.status.code, failed.status.details], [grpc.status.NOT_FOUND, "no such thing: ä"]);
  const many = await Promise.all(Array.from({ length: 200 }, (_, at) => unary(client, `n${at}`)));
  assert.deepEqual(
    many.map(({ text }) => text),
    many.map((_, at) => `n${at}`),
  );
  const big = "x".repeat(2_000_000);
  assert.equal((await unary(client, big)).text?.length, big.length);
});

void test("a gRPC stream carries messages both ways, each as it is sent", async () => {
  await using fixture = await openTlsFixture();
  const sandbox = fixture.sandbox();
  using server = await serveEcho(sandbox);
  using client = clientOf(fixture, `${server.port}-${sandbox.sandboxID}.${DOMAIN}`);
  const call = client.makeBidiStreamRequest(echo.both.path, bytes, bytes);
  for (let at = 0; at < 20; at++) {
    call.write(Buffer.from(`m${at}`));
    assert.equal(String(await new Promise((resolve) => call.once("data", resolve))), `m${at}`);
  }
  const ended = new Promise<grpc.StatusObject>((resolve) => call.once("status", resolve));
  call.end();
  call.resume();
  const status = await ended;
  assert.deepEqual([status.code, status.metadata.getMap()["x-sum"]], [grpc.status.OK, "42"]);
});

void test("a gRPC stream fails when its sandbox is killed, and a call to a closed port says why", async () => {
  await using fixture = await openTlsFixture();
  const sandbox = fixture.sandbox();
  using server = await serveEcho(sandbox);
  using client = clientOf(fixture, `${server.port}-${sandbox.sandboxID}.${DOMAIN}`);
  const call = client.makeBidiStreamRequest(echo.wait.path, bytes, bytes);
  const ended = new Promise<grpc.StatusObject>((resolve) => call.once("status", resolve));
  call.on("error", () => {});
  await new Promise((resolve) => call.once("data", resolve));
  fixture.kill(sandbox.sandboxID);
  assert.notEqual((await ended).code, grpc.status.OK);
  const other = fixture.sandbox();
  using closed = clientOf(fixture, `9-${other.sandboxID}.${DOMAIN}`);
  const { status } = await unary(closed, "hello");
  assert.deepEqual([status.code, status.details], [grpc.status.UNAVAILABLE, "The sandbox is running but port is not open"]);
});

void test("a gRPC server sees neither the API key nor forged client addresses, and private traffic needs its token", async () => {
  await using fixture = await openTlsFixture();
  const sandbox = fixture.sandbox({ trafficPrivate: true });
  using server = await serveEcho(sandbox);
  using client = clientOf(fixture, `${server.port}-${sandbox.sandboxID}.${DOMAIN}`);
  assert.equal((await unary(client, "hello")).status.code, grpc.status.PERMISSION_DENIED);
  const metadata = new grpc.Metadata();
  metadata.set("svc-traffic-access-token", sandbox.trafficAccessToken);
  metadata.set("x-api-key", deploymentKey);
  metadata.set("x-access-token", sandbox.envdAccessToken);
  metadata.set("x-forwarded-for", "203.0.113.9");
  metadata.set("x-own", "kept");
  assert.equal((await unary(client, "hello", metadata)).text, "hello");
  const given = server.seen[0]?.getMap() ?? {};
  assert.deepEqual([given["x-own"], given["x-forwarded-for"], given["x-forwarded-proto"]], ["kept", "127.0.0.1", "https"]);
  for (const name of ["svc-traffic-access-token", "x-api-key", "x-access-token"]) assert.equal(given[name], undefined, name);
  // The tunnel of one call's credentials admits no other call.
  assert.equal((await unary(client, "hello")).status.code, grpc.status.PERMISSION_DENIED);
});

void test("a client cannot ask for a raw connection to a port", async () => {
  await using fixture = await openTlsFixture();
  const sandbox = fixture.sandbox();
  const { port } = await fixture.serve(sandbox.host, 0, (_, response) => response.end("as ever"));
  const name = `${port}-${sandbox.sandboxID}.${DOMAIN}`;
  const headers = { host: name, connection: "Upgrade", upgrade: "svc-h2c" };
  assert.deepEqual(await fixture.get(name, "/", headers), { status: 200, body: "as ever" });
});
