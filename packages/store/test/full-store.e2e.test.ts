// A full store as users of Mooncake's client see it, and when a lease ends.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { RpcClient } from "../src/rpc/client.ts";
import { codes } from "../src/rpc/codes.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { MIB, startHolder } from "./holder.ts";
import { startMaster } from "./master.ts";

const sleepExactly = async (ms: number) => {
  const end = performance.now() + ms;
  while (performance.now() < end) await new Promise((resolve) => setTimeout(resolve, Math.max(0, end - performance.now())));
};

void test("a key that was looked up can be removed once its lease has passed, to the millisecond", async () => {
  const leaseMs = 37;
  await using master = await startMaster({ flags: [`--default_kv_lease_ttl=${leaseMs}ms`] });
  const rpc = await RpcClient.connect("127.0.0.1", master.rpcPort, {});
  assert.ok((await rpc.call("MountSegment", segmentOf(1, 1_000_000n), clientID)).ok);
  for (let round = 0; round < 60; round++) {
    const key = `k${round}`;
    assert.ok((await rpc.call("PutStart", clientID, key, 10n, plain, "")).ok);
    assert.ok((await rpc.call("PutEnd", clientID, { key, checksum: undefined }, 4, "")).ok);
    assert.deepEqual(await rpc.call("ExistKey", key, ""), { ok: true, value: true });
    await sleepExactly(leaseMs);
    assert.deepEqual(await rpc.call("Remove", key, false, ""), { ok: true, value: undefined }, `round ${round}`);
  }
  rpc.close();
});

void test("200 MiB put into 64 MiB in one burst: every put is stored, the oldest are evicted", needs("python-clients", "python3"), async () => {
  await using master = await startMaster();
  await using holder = await startHolder({ master: master.rpcPort, segmentBytes: 64 * MIB });
  const { wrong } = await holder.ask<{ wrong: number }>({ op: "timed", what: "put", prefix: "burst", threads: 4, count: 200, length: MIB });
  assert.equal(wrong, 0);
});

void test("a put that finds all memory leased waits for a lease to end; where none ends, it is refused, and the next one at once", async () => {
  await using master = await startMaster({ flags: ["--default_kv_lease_ttl=1500ms", "--store.put_wait_ms=5000"] });
  const writer = await RpcClient.connect("127.0.0.1", master.rpcPort, {});
  assert.ok((await writer.call("MountSegment", segmentOf(1, 1_000_000n), clientID)).ok);
  const fill = async (key: string) => {
    assert.ok((await writer.call("PutStart", clientID, key, 250_000n, plain, "")).ok);
    assert.ok((await writer.call("PutEnd", clientID, { key, checksum: undefined }, 4, "")).ok);
    assert.deepEqual(await writer.call("ExistKey", key, ""), { ok: true, value: true });
  };
  for (const key of ["a", "b", "c"]) await fill(key);
  const waits = writer.call("PutStart", clientID, "d", 500_000n, plain, "");
  // Other calls of the same connection are answered meanwhile.
  assert.deepEqual(await writer.call("ExistKey", "d", ""), { ok: true, value: false });
  assert.ok((await waits).ok);
  // This put is never ended, so it is unfinished and cannot be evicted.
  const refused = await writer.call("PutStart", clientID, "e", 900_000n, plain, "");
  assert.deepEqual(refused, { ok: false, code: codes.NO_AVAILABLE_HANDLE });
  const metrics = await (await fetch(`${master.url}/metrics`)).text();
  assert.match(metrics, /svc_store_allocation_failures_total [1-9]/);
  writer.close();
});
