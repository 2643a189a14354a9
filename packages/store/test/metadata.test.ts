// The HTTP contract of the metadata server, over real sockets.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { startMetadataServer } from "./server.ts";

void test("a PUT is read back byte for byte, replaced by the next one, and gone after DELETE", async () => {
  await using server = await startMetadataServer();
  const key = "svc/rpc_meta/a b/ü+%";
  assert.equal((await server.fetch(key)).status, 404);
  assert.equal((await server.fetch(key, { method: "PUT", body: '{"n":140306788904976}' })).status, 200);
  assert.equal(await (await server.fetch(key)).text(), '{"n":140306788904976}');
  assert.equal((await server.fetch(key, { method: "PUT", body: "other" })).status, 200);
  const read = await server.fetch(key);
  assert.equal(read.headers.get("content-type"), "application/json");
  assert.equal(await read.text(), "other");
  assert.equal((await server.fetch(key, { method: "DELETE" })).status, 200);
  assert.equal((await server.fetch(key, { method: "DELETE" })).status, 404);
  assert.equal((await server.fetch(key)).status, 404);
});

void test("keys are percent-decoded, so a/b and a%2Fb are one key", async () => {
  await using server = await startMetadataServer();
  await fetch(`${server.url}?key=svc%2Fram%2Fx`, { method: "PUT", body: "1" });
  assert.equal(await (await fetch(`${server.url}?key=svc/ram/x`)).text(), "1");
  assert.equal((await fetch(`${server.url}?key=%ff`)).status, 400);
});

void test("a request without a key is 400, another method 405, another path 404, a value past the limit 413", async () => {
  await using server = await startMetadataServer(["--metadata.max_value_bytes=1000"]);
  assert.equal((await fetch(server.url)).status, 400);
  assert.equal((await fetch(`${server.url}?key=`)).status, 400);
  const other = await fetch(`${server.url}?key=a`, { method: "POST", body: "1" });
  assert.equal(other.status, 405);
  assert.equal(other.headers.get("allow"), "GET, HEAD, PUT, DELETE");
  assert.equal((await fetch(server.url.replace("/metadata", "/other?key=a"))).status, 404);
  assert.equal((await server.fetch("a", { method: "PUT", body: "x".repeat(1000) })).status, 200);
  const large = await server.fetch("a", { method: "PUT", body: "x".repeat(1001) });
  assert.equal(large.status, 413);
  assert.match(await large.text(), /metadata\.max_value_bytes/);
  assert.equal((await (await server.fetch("a")).text()).length, 1000);
});

void test("health answers OK, metrics count requests and keys, and a browser gets a page", async () => {
  await using server = await startMetadataServer();
  await server.fetch("a", { method: "PUT", body: "1" });
  const health = await fetch(server.url.replace("/metadata", "/health"));
  assert.equal(await health.text(), "OK");
  const page = await fetch(server.url.replace("/metadata", "/"));
  assert.equal(page.headers.get("content-type"), "text/html; charset=utf-8");
  assert.match(await page.text(), /<h1>svc metadata<\/h1>/);
  const metrics = await (await fetch(server.url.replace("/metadata", "/metrics"))).text();
  assert.match(metrics, /svc_metadata_keys 1\n/);
  assert.match(metrics, /svc_metadata_request_seconds_count\{method="PUT",code="200"\} 1\n/);
});

void test("acknowledged changes survive a SIGKILL, and a plain PUT stays until DELETE", async () => {
  await using server = await startMetadataServer();
  await Promise.all(Array.from({ length: 50 }, (_, i) => server.fetch(`k${i}`, { method: "PUT", body: `v${i}` })));
  await server.fetch("k0", { method: "DELETE" });
  await server.kill("SIGKILL");
  await server.start();
  assert.equal((await server.fetch("k0")).status, 404);
  for (let i = 1; i < 50; i++) assert.equal(await (await server.fetch(`k${i}`)).text(), `v${i}`);
});

void test("with durability memory nothing survives, and SIGTERM ends with code 0", async () => {
  await using server = await startMetadataServer(["--durability=memory"]);
  await server.fetch("a", { method: "PUT", body: "1" });
  assert.equal(await server.kill("SIGTERM"), 0);
  await server.start();
  assert.equal((await server.fetch("a")).status, 404);
});

void test("a key put with a lease expires when the lease ends, and stays while it is renewed", async () => {
  await using server = await startMetadataServer();
  const put = (key: string, leaseMs: string) => server.fetch(key, { method: "PUT", body: "1", headers: { "x-lease-ttl-ms": leaseMs } });
  assert.equal((await put("short", "1")).status, 200);
  assert.equal((await put("long", "600000")).status, 200);
  assert.equal((await put("bad", "soon")).status, 400);
  while ((await server.fetch("short")).status !== 404);
  assert.equal((await server.fetch("long")).status, 200);
});

void test("concurrent PUTs of one key leave one of the values complete", async () => {
  await using server = await startMetadataServer();
  const values = Array.from({ length: 32 }, (_, i) => `${i}-`.repeat(5000));
  const statuses = await Promise.all(values.map(async (value) => (await server.fetch("one", { method: "PUT", body: value })).status));
  assert.deepEqual(new Set(statuses), new Set([200]));
  assert.ok(values.includes(await (await server.fetch("one")).text()));
});

void test("pipelined requests are answered in order, whatever the coding of their bodies", async () => {
  await using server = await startMetadataServer();
  const port = Number(new URL(server.url).port);
  const text = await new Promise<string>((resolve, reject) => {
    let got = "";
    const socket = connect(port, "127.0.0.1", () => {
      socket.write("PUT /metadata?key=a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n");
      socket.write("GET /metadata?key=a HTTP/1.1\r\nHost: x\r\n\r\nGET /metadata?key=b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    });
    socket.setEncoding("utf8").on("data", (chunk: string) => {
      got += chunk;
    });
    socket.on("end", () => resolve(got)).on("error", reject);
  });
  assert.deepEqual(
    [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map((found) => found[1]),
    ["200", "200", "404"],
  );
  assert.match(text, /abcde/);
});

void test("a request with an ambiguous body length is refused and the connection closed", async () => {
  await using server = await startMetadataServer();
  const port = Number(new URL(server.url).port);
  for (const headers of ["Content-Length: 3\r\nTransfer-Encoding: chunked", "Content-Length: 3\r\nContent-Length: 4", "Content-Length: -1"]) {
    const text = await new Promise<string>((resolve, reject) => {
      let got = "";
      const socket = connect(port, "127.0.0.1", () => socket.write(`PUT /metadata?key=a HTTP/1.1\r\nHost: x\r\n${headers}\r\n\r\nabc`));
      socket.setEncoding("utf8").on("data", (chunk: string) => {
        got += chunk;
      });
      socket.on("end", () => resolve(got)).on("error", reject);
    });
    assert.match(text, /^HTTP\/1\.1 400 /);
  }
  assert.equal((await server.fetch("a")).status, 404);
});

void test("reaching a limit is refused with the name of its setting", async () => {
  await using server = await startMetadataServer(["--metadata.max_keys=2"]);
  assert.equal((await server.fetch("a", { method: "PUT", body: "1" })).status, 200);
  assert.equal((await server.fetch("b", { method: "PUT", body: "1" })).status, 200);
  const third = await server.fetch("c", { method: "PUT", body: "1" });
  assert.equal(third.status, 503);
  assert.match(await third.text(), /metadata\.max_keys/);
  assert.equal((await server.fetch("a", { method: "PUT", body: "2" })).status, 200);
});
