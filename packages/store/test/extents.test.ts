// Memory leased ahead, checksums, fingerprints and the reasons of misses, as the master keeps them for our own client.
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import type { RpcClient } from "../src/rpc/client.ts";
import { codes } from "../src/rpc/codes.ts";
import type { Extent } from "../src/rpc/shapes.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { startMaster, type TestMaster } from "./master.ts";

const MIB = 1n << 20n;
const reasons = {
  unknown: 0,
  neverStored: 1,
  removed: 2,
  evicted: 3,
  expired: 4,
  holderLost: 5,
  tenant: 6,
  quota: 7,
  fingerprint: 8,
  holderAway: 11,
  stored: 12,
};

async function mounted(master: TestMaster, sizeBytes = 64n * MIB): Promise<RpcClient & AsyncDisposable> {
  const rpc = await master.rpc();
  await rpc.call("ReMountSegment", [segmentOf(1, sizeBytes)], clientID);
  const pings = setInterval(() => void rpc.call("Ping", clientID).catch(() => undefined), 300);
  return Object.assign(rpc, {
    async [Symbol.asyncDispose]() {
      clearInterval(pings);
      rpc.close();
    },
  });
}

async function lease(rpc: RpcClient, sizeBytes: bigint, count: bigint, avoided: string[] = []): Promise<readonly Extent[]> {
  const answer = await rpc.call("LeaseExtents", clientID, sizeBytes, count, plain, avoided, "");
  assert.ok(answer.ok, `leasing was refused: ${answer.ok ? "" : answer.code}`);
  return answer.value.extents;
}

const commit = async (rpc: RpcClient, extent: Extent | undefined, key: string, fingerprint = "", replace = false, checksum: bigint | undefined = 7n) =>
  (await rpc.call("CommitPuts", clientID, [{ extent: extent?.id ?? 0n, key, checksum }], plain, fingerprint, replace, ""))[0];
const read = async (rpc: RpcClient, key: string, fingerprint = "") => (await rpc.call("ReadObjects", [key], fingerprint, ""))[0];
const why = async (rpc: RpcClient, key: string, fingerprint = "") => (await rpc.call("WhyMissing", [key], fingerprint, ""))[0];
async function usedBytes(master: TestMaster): Promise<number> {
  const { segments } = (await (await fetch(`${master.url}/get_segments_detail`)).json()) as { segments: { allocator_used_bytes: number }[] };
  return segments.reduce((sum, each) => sum + each.allocator_used_bytes, 0);
}

void test("an object put by a commit is readable at once, with its checksum, and survives a kill of the master", async () => {
  await using master = await startMaster();
  let [first, second]: readonly (Extent | undefined)[] = [];
  {
    await using rpc = await mounted(master);
    [first, second] = await lease(rpc, 4096n, 3n);
    assert.deepEqual(await commit(rpc, first, "k", "layout-1"), { ok: true, value: undefined });
    assert.equal((await commit(rpc, first, "other"))?.ok, false, "an extent serves one object");
    assert.deepEqual(await commit(rpc, second, "k"), { ok: false, code: codes.OBJECT_ALREADY_EXISTS });
    assert.deepEqual(await commit(rpc, second, "k2"), { ok: true, value: undefined }, "and is used again when its key was there already");
  }
  await master.kill();
  await master.start();
  await using rpc = await mounted(master);
  const found = await read(rpc, "k", "layout-1");
  assert.ok(found?.ok);
  assert.equal(found.value.checksum, 7n);
  assert.equal(found.value.replicas[0]?.place.type === "memory" && found.value.replicas[0].place.buffer.address, first?.ranges[0]?.address);
  assert.deepEqual(await read(rpc, "k", "layout-2"), { ok: false, code: codes.OBJECT_NOT_FOUND }, "another layout's bytes are a miss");
  assert.equal((await why(rpc, "k", "layout-2"))?.reason, reasons.fingerprint);
});

void test("a key that can be read is stored and not missing, and its holder is away only while that is silent", async () => {
  await using master = await startMaster({ flags: ["--store.suspect_after_ms=2000"] });
  {
    await using rpc = await mounted(master);
    const [extent] = await lease(rpc, 4096n, 1n);
    assert.deepEqual(await commit(rpc, extent, "k"), { ok: true, value: undefined });
    assert.deepEqual(await why(rpc, "k"), { reason: reasons.stored, atMs: 0n });
  }
  const rpc = await master.rpc();
  await until("its holder is silent", async () => ((await read(rpc, "k"))?.ok === false ? true : undefined));
  assert.equal((await why(rpc, "k"))?.reason, reasons.holderAway);
  assert.equal((await rpc.call("Ping", clientID)).ok, true);
  assert.equal((await why(rpc, "k"))?.reason, reasons.stored, "a ping brings the holder back");
  rpc.close();
});

void test("an extent that was leased before a restart cannot be committed, and its bytes are not reused until late writers have ended", async () => {
  await using master = await startMaster();
  let extent: Extent | undefined;
  {
    await using rpc = await mounted(master, MIB);
    [extent] = await lease(rpc, MIB / 2n, 1n);
  }
  await master.kill();
  await master.start();
  await using rpc = await mounted(master, MIB);
  assert.deepEqual(await commit(rpc, extent, "k"), { ok: false, code: codes.INVALID_WRITE });
  for (let at = 0; at < 8; at++) {
    const answer = await rpc.call("LeaseExtents", clientID, MIB / 4n, 1n, plain, [], "");
    if (!answer.ok) break;
    const [start, end] = [extent?.ranges[0]?.address ?? 0n, (extent?.ranges[0]?.address ?? 0n) + MIB / 2n];
    const address = answer.value.extents[0]?.ranges[0]?.address ?? 0n;
    assert.ok(address + MIB / 4n <= start || address >= end, "memory of an old lease was given out again");
  }
});

void test("extents of a lost client are freed after their bound, and unwritten ones that are returned are free at once", async () => {
  await using master = await startMaster({ flags: ["--put_start_discard_timeout_sec=1", "--put_start_release_timeout_sec=1"] });
  await using rpc = await mounted(master);
  const extents = await lease(rpc, MIB / 4n, 4n);
  assert.equal(await usedBytes(master), Number(MIB));
  await rpc.call("ReturnExtents", clientID, [extents[0]?.id ?? 0n], false);
  assert.equal(await usedBytes(master), Number((3n * MIB) / 4n));
  await until("the lease is over and late writers are", async () => ((await usedBytes(master)) === 0 ? true : undefined));
  assert.deepEqual(await commit(rpc, extents[1], "late"), { ok: false, code: codes.INVALID_WRITE });
  assert.equal((await read(rpc, "late"))?.ok, false);
});

void test("clients lease no more ahead than a share of the memory, but always as much as one put needs", async () => {
  await using master = await startMaster();
  await using rpc = await mounted(master);
  assert.equal((await lease(rpc, MIB, 256n)).length, 3);
  assert.equal((await lease(rpc, 8n * MIB, 8n)).length, 1);
});

void test("a writer that names an endpoint it cannot reach gets memory elsewhere", async () => {
  await using master = await startMaster();
  await using rpc = await mounted(master);
  await rpc.call("ReMountSegment", [segmentOf(1, 64n * MIB), segmentOf(2, 64n * MIB)], clientID);
  for (let at = 0; at < 8; at++) assert.equal((await lease(rpc, 4096n, 1n, ["holder-1:1"]))[0]?.ranges[0]?.endpoint, "holder-2:1");
  assert.deepEqual(await rpc.call("LeaseExtents", clientID, 4096n, 1n, plain, ["holder-1:1", "holder-2:1"], ""), {
    ok: false,
    code: codes.NO_AVAILABLE_HANDLE,
  });
});

void test("a miss has a reason: never stored, removed, evicted, and when", async () => {
  await using master = await startMaster({ flags: ["--default_kv_lease_ttl=100ms"] });
  await using rpc = await mounted(master, 8n * MIB);
  assert.equal((await why(rpc, "nothing"))?.reason, reasons.neverStored);
  const begun = Date.now();
  await commit(rpc, (await lease(rpc, 4096n, 1n))[0], "gone");
  assert.ok((await rpc.call("Remove", "gone", true, "")).ok);
  const removed = await why(rpc, "gone");
  assert.equal(removed?.reason, reasons.removed);
  assert.ok(Math.abs(Number(removed?.atMs) - begun) < 60_000);
  for (let at = 0; at < 24; at++) {
    for (let left = 200; left > 0; left--) {
      const answer = await rpc.call("LeaseExtents", clientID, MIB, 1n, plain, [], "");
      if (answer.ok) {
        await commit(rpc, answer.value.extents[0], `fill-${at}`);
        break;
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
  const reasonsFound = new Set<number>();
  for (let at = 0; at < 24; at++) if (!(await read(rpc, `fill-${at}`))?.ok) reasonsFound.add((await why(rpc, `fill-${at}`))?.reason ?? -1);
  assert.deepEqual([...reasonsFound], [reasons.evicted]);
});

void test("a restart of the master keeps why a key is not there and when it went, from the log and from a snapshot", async () => {
  for (const snapshots of [false, true]) {
    await using master = await startMaster({ flags: snapshots ? ["--store.snapshot_log_bytes=65536", "--store.log_file_bytes=65536"] : [] });
    let before: Awaited<ReturnType<typeof why>>;
    {
      await using rpc = await mounted(master);
      await commit(rpc, (await lease(rpc, 4096n, 1n))[0], "gone");
      assert.ok((await rpc.call("Remove", "gone", true, "")).ok);
      before = await why(rpc, "gone");
      assert.equal(before?.reason, reasons.removed);
      // Further records make the master replace the log by a snapshot.
      for (let at = 0; at < 800; at++) await commit(rpc, (await lease(rpc, 4096n, 1n))[0], `kept-${at}-${"x".repeat(100)}`);
      if (snapshots)
        await until("a snapshot is taken", async () => {
          const text = await (await fetch(`${master.url}/metrics`)).text();
          return /^svc_store_snapshots_total [1-9]/m.test(text) ? true : undefined;
        });
    }
    for (let round = 0; round < 2; round++) {
      await master.kill();
      await master.start();
      await using rpc = await mounted(master);
      assert.deepEqual(await why(rpc, "gone"), before);
      assert.notEqual((await why(rpc, "nothing"))?.reason, reasons.removed);
    }
  }
});
