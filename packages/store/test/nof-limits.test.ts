// Faults that NOF segments must avoid: evicting far more than needed, accepting an invalid size, and returning bytes without a checksum.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { clientID, plain } from "./calls.ts";
import { openClient, startClient } from "./client.ts";
import { metric } from "./folder.ts";
import { startMaster } from "./master.ts";
import { MIB, nofDetails, nofEntry, nofFlags } from "./nof.ts";
import { bytesOf, makeFolder } from "./ssd.ts";

const [MEMORY, NOF, ALL] = [0, 3, 4];

void test("eviction of small objects from a NOF segment counts the blocks that they take, and leaves most of them", async () => {
  await using folder = makeFolder();
  // Each eviction frees 5 % above 90 %; puts during an eviction fit twice into the rest.
  await using master = await startMaster({ flags: nofFlags() });
  await using _holder = await startClient(master, { nof: { file: join(folder.path, "namespace"), bytes: 8 * MIB } });
  await using client = await openClient(master, { leasesAhead: false });
  const keys = Array.from({ length: 1900 }, (_, at) => `small-${at}`);
  await client.putBatch(
    keys.map((key) => ({ key, value: bytesOf(key, 64) })),
    { replicas: 0, nofReplicas: 1 },
  );
  await until("some were evicted", async () => ((await metric(master, "svc_store_nof_evicted_keys_total")) > 0 ? true : undefined));
  const capacity = (await nofDetails(master))[0]?.size_bytes ?? 0;
  const used = await until("evictions ended", async () => {
    const bytes = (await nofDetails(master))[0]?.allocator_used_bytes ?? 0;
    return bytes <= 0.9 * capacity ? bytes : undefined;
  });
  assert.ok(used > 0.7 * capacity, `${used} of ${capacity} bytes are left`);
});

void test("a size that would wrap around when it is rounded up to blocks gets no range", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: nofFlags() });
  await using _holder = await startClient(master, { nof: { file: join(folder.path, "namespace"), bytes: MIB } });
  const rpc = await master.rpc();
  for (const size of [2n ** 64n - 1n, 2n ** 64n - 4095n, 2n ** 63n])
    assert.deepEqual(await rpc.call("PutStart", clientID, "huge", size, { ...plain, replicas: 0n, nofReplicas: 1n }, ""), { ok: false, code: -200 });
  rpc.close();
});

void test("objects without a checksum are neither read from a NOF segment nor copied to one", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: nofFlags() });
  await using memory = await startClient(master, { segmentBytes: 8 * MIB });
  await using holder = await openClient(master, { nof: { file: join(folder.path, "namespace"), bytes: 8 * MIB } });
  const rpc = await master.rpc();
  const store = async (key: string, nofReplicas: bigint) => {
    assert.ok((await rpc.call("PutStart", clientID, key, 100n, { ...plain, replicas: 1n - nofReplicas, nofReplicas }, "")).ok);
    assert.ok((await rpc.call("PutEnd", clientID, { key, checksum: undefined }, ALL, "")).ok);
  };
  await store("in memory", 0n);
  await store("on nof", 1n);
  await using client = await openClient(master, { verifies: false });
  assert.equal((await client.get("in memory"))?.length, 100);
  assert.equal(await client.get("on nof"), undefined);
  assert.deepEqual(await rpc.call("CopyStart", clientID, "in memory", "", memory.name, [holder.nofSegment ?? ""]), {
    ok: false,
    code: -600,
  });
  rpc.close();
});

void test("revoking all kinds of a put keeps the kind that has ended, and an end of a kind that it does not have is refused", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: nofFlags() });
  await using _memory = await startClient(master, { segmentBytes: 8 * MIB });
  await using _holder = await startClient(master, { nof: { file: join(folder.path, "namespace"), bytes: 8 * MIB } });
  const rpc = await master.rpc();
  const meta = (key: string) => ({ key, checksum: 1n });
  assert.ok((await rpc.call("PutStart", clientID, "half", 100n, { ...plain, nofReplicas: 1n }, "")).ok);
  assert.ok((await rpc.call("PutEnd", clientID, meta("half"), MEMORY, "")).ok);
  assert.ok((await rpc.call("PutRevoke", clientID, "half", ALL, "")).ok);
  const { ok, values, nof_values } = await nofEntry(master, "half");
  assert.deepEqual([ok, values?.length, nof_values], [true, 1, undefined]);
  assert.ok((await rpc.call("PutStart", clientID, "memory", 100n, plain, "")).ok);
  assert.deepEqual(await rpc.call("PutEnd", clientID, meta("memory"), NOF, ""), { ok: false, code: -700 });
  assert.ok((await rpc.call("PutEnd", clientID, meta("memory"), MEMORY, "")).ok);
  rpc.close();
});
