// One conformance suite over the three metadata services: etcd, redis, and our own server.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { TransferEngine } from "../src/engine.ts";
import { metadataSuite } from "./metadata.suite.ts";
import { startEtcd, startHttp, startRedis } from "./services.ts";

metadataSuite("http", { skip: false }, startHttp);
metadataSuite("etcd", needs("etcd"), () => startEtcd());
metadataSuite("redis", needs("redis-server", "redis-cli"), startRedis);

void test("host:port without a scheme means etcd", needs("etcd"), async () => {
  await using service = await startEtcd("");
  await using engine = new TransferEngine({ settings: { log_level: 0 } });
  await engine.init({ metadata: service.metadata, name: "bare", host: "127.0.0.1" });
  assert.ok((await service.get("svc/ram/bare")) !== undefined);
});

void test("an unknown kind of connection string, and a service that does not answer, are refused at init", async () => {
  for (const [metadata, says] of [
    ["zookeeper://127.0.0.1:1", /no client for zookeeper/],
    ["http:///metadata", /expected http/],
    ["redis://127.0.0.1:1/x", /expected redis/],
    ["", /empty/],
    ["http://127.0.0.1:1/metadata", /127\.0\.0\.1:1/],
    ["etcd://127.0.0.1:1", /127\.0\.0\.1:1/],
    ["redis://127.0.0.1:1", /127\.0\.0\.1:1/],
  ] as const) {
    const engine = new TransferEngine({ settings: { log_level: 0 } });
    await assert.rejects(engine.init({ metadata, name: "x", host: "127.0.0.1" }), says);
  }
});
