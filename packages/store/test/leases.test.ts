// Leases of the metadata server: what expires, what does not, and what a restart changes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { startMetadataServer, type TestServer } from "./server.ts";

const put = (server: TestServer, key: string, value: string, leaseMs?: number) =>
  server.fetch(key, { method: "PUT", body: value, headers: leaseMs === undefined ? {} : { "x-lease-ttl-ms": String(leaseMs) } });
const status = async (server: TestServer, key: string) => (await server.fetch(key)).status;

async function untilGone(server: TestServer, key: string): Promise<void> {
  const bound = Date.now() + 30_000;
  while ((await status(server, key)) !== 404) {
    assert.ok(Date.now() < bound, `${key} does not expire`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

void test("a plain PUT over a leased key keeps it until DELETE, and a lease over a plain key lets it expire", async () => {
  await using server = await startMetadataServer();
  await put(server, "kept", "1", 300);
  await put(server, "kept", "2");
  await put(server, "lent", "1");
  await put(server, "lent", "2", 300);
  await untilGone(server, "lent");
  assert.equal(await (await server.fetch("kept")).text(), "2");
  assert.equal((await server.fetch("kept", { method: "DELETE" })).status, 200);
  assert.equal(await status(server, "kept"), 404);
});

void test("a key whose lease is renewed lives for many lease times", async () => {
  await using server = await startMetadataServer();
  await put(server, "marker", "1", 5000);
  await put(server, "renewed", "0", 5000);
  let round = 0;
  while ((await status(server, "marker")) !== 404) {
    assert.equal((await put(server, "renewed", String(++round), 5000)).status, 200);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.equal(await (await server.fetch("renewed")).text(), String(round));
});

void test("DELETE ends a leased key at once, and its old lease does not affect the key put after it", async () => {
  await using server = await startMetadataServer();
  await put(server, "a", "1", 5000);
  await put(server, "probe", "1", 5000);
  assert.equal((await server.fetch("a", { method: "DELETE" })).status, 200);
  assert.equal(await status(server, "a"), 404);
  await put(server, "a", "2");
  await untilGone(server, "probe");
  assert.equal(await (await server.fetch("a")).text(), "2");
});

void test("after a SIGKILL a leased key is restored, its lease restarts, and then it expires", async () => {
  await using server = await startMetadataServer();
  await put(server, "short", "1", 2000);
  await put(server, "long", "2", 600_000);
  await put(server, "plain", "3");
  await server.kill("SIGKILL");
  await server.start();
  assert.equal(await (await server.fetch("long")).text(), "2");
  await untilGone(server, "short");
  assert.equal(await status(server, "long"), 200);
  assert.equal(await status(server, "plain"), 200);
  await server.kill("SIGKILL");
  await server.start();
  assert.equal(await status(server, "short"), 404);
});

void test("GET with a prefix gives the keys below it and their values, without the expired ones; HEAD gives no body", async () => {
  await using server = await startMetadataServer();
  await put(server, "svc/ram/a", '{"n":1}');
  await put(server, "svc/ram/b", "text");
  await put(server, "svc/ram/gone", "1", 50);
  await put(server, "svc/nvmeof/c", "3");
  await untilGone(server, "svc/ram/gone");
  const list = await fetch(`${server.url}?prefix=${encodeURIComponent("svc/ram/")}`);
  assert.equal(list.status, 200);
  assert.deepEqual(await list.json(), { "svc/ram/a": '{"n":1}', "svc/ram/b": "text" });
  assert.deepEqual(await (await fetch(`${server.url}?prefix=none/`)).json(), {});
  const head = await server.fetch("svc/ram/a", { method: "HEAD" });
  assert.equal(head.status, 200);
  assert.equal(await head.text(), "");
  // The sweep that follows counts the expired key.
  const bound = Date.now() + 30_000;
  while (!/svc_metadata_expired_total 1\n/.test(await (await fetch(server.url.replace("/metadata", "/metrics"))).text())) assert.ok(Date.now() < bound);
});
