// Ranges that cool down survive a kill: those that only readers may still use for a lease, those that a writer may still write for longer.
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import type { RpcClient } from "../src/rpc/client.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { startMaster, type TestMaster } from "./master.ts";

const BYTES = 1000n;
const FLAGS = ["--client_ttl=600s", "--store.suspect_after_ms=600000", "--default_kv_lease_ttl=500ms", "--put_start_release_timeout_sec=600"];

async function usedBytes(master: TestMaster): Promise<number> {
  const { segments } = (await (await fetch(`${master.url}/get_segments_detail`)).json()) as { segments: { allocator_used_bytes: number }[] };
  return segments.reduce((sum, row) => sum + row.allocator_used_bytes, 0);
}

async function upsert(rpc: RpcClient, key: string): Promise<void> {
  assert.equal((await rpc.call("UpsertStart", clientID, key, BYTES, plain, "")).ok, true);
  assert.equal((await rpc.call("UpsertEnd", clientID, { key, checksum: undefined }, 4, "")).ok, true);
}

for (const [ending, signal] of [
  ["a kill", "SIGKILL"],
  ["a clean stop, which leaves a snapshot", "SIGTERM"],
] as const)
  void test(`ranges of replaced objects are free one lease after ${ending}; ranges that a writer may still write are not`, async () => {
    await using master = await startMaster({ flags: FLAGS });
    let rpc = await master.rpc();
    await rpc.call("MountSegment", segmentOf(1, 1_000_000n), clientID);
    for (let at = 0; at < 20; at++) {
      await upsert(rpc, "k");
      // A lease on the present version makes the next one use another range.
      assert.equal((await rpc.call("GetReplicaList", "k", "")).ok, true);
    }
    // Ranges of replaced objects may be leased ahead of a later put, so that a writer has them.
    const leased = await rpc.call("LeaseExtents", clientID, BYTES, 3n, plain, [], "");
    assert.equal(leased.ok && leased.value.extents.length, 3);
    const [failed] = leased.ok ? leased.value.extents : [];
    assert.equal((await rpc.call("ReturnExtents", clientID, [failed?.id ?? 0n], true)).ok, true);
    assert.ok((await usedBytes(master)) > 10 * Number(BYTES));
    await master.kill(signal);
    await master.start();
    rpc = await master.rpc();
    await rpc.call("ReMountSegment", [segmentOf(1, 1_000_000n)], clientID);
    // The object, and three leased ranges, one of them after a failed write.
    const rest = await until("the ranges of replaced versions to be free", async () => {
      const used = await usedBytes(master);
      return used <= 4 * Number(BYTES) ? used : undefined;
    });
    assert.equal(rest, 4 * Number(BYTES));
    rpc.close();
  });
