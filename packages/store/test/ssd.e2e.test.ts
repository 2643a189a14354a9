// The SSD tier with separate processes: what is written to disk, how it is read, what a restart restores, and unmounting.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { type ClientProcess, openClient, startClient } from "./client.ts";
import { startMaster, type TestMaster } from "./master.ts";
import { bytesOf, filesIn, makeFolder } from "./ssd.ts";

const MIB = 2 ** 20;
const OFFLOAD = ["--enable_offload=true", "--default_kv_lease_ttl=200"];

type Entry = { ok: boolean; values: unknown[]; local_disk_values?: { client_id: string; object_size: number; transport_endpoint: string }[] };
async function entryOf(master: TestMaster, key: string): Promise<Entry> {
  const answer = await fetch(`${master.url}/batch_query_keys?keys=${key}`);
  return ((await answer.json()) as { data: Record<string, Entry> }).data[key] as Entry;
}
const onDisk = (master: TestMaster, key: string) =>
  until(`${key} is on disk`, async () => {
    const { local_disk_values } = await entryOf(master, key);
    return local_disk_values?.length === 1 ? local_disk_values[0] : undefined;
  });
const metric = async (master: TestMaster, name: string) =>
  Number(new RegExp(`^${name} (\\S+)$`, "m").exec(await (await fetch(`${master.url}/metrics`)).text())?.[1] ?? Number.NaN);

void test("an object that was put lies on its holder's disk too, and is read from there once its memory is gone", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: OFFLOAD });
  await using holder = await startClient(master, { segmentBytes: 4 * MIB, ssdFolder: folder.path, ssdBytes: 64 * MIB });
  await using reader = await openClient(master);
  const keys = Array.from({ length: 12 }, (_, at) => `block-${at}`);
  for (const key of keys) {
    assert.equal(await reader.put(key, bytesOf(key, MIB), { softPin: "keep" }), true);
    await onDisk(master, key);
  }
  const [shown] = (await entryOf(master, keys[0] as string)).local_disk_values ?? [];
  assert.equal(shown?.object_size, MIB);
  assert.equal(shown?.transport_endpoint, holder.name);
  // Twelve objects do not fit in memory, so the first ones are on disk only.
  assert.deepEqual((await entryOf(master, keys[0] as string)).values, []);
  for (const key of keys) assert.ok((await reader.get(key))?.equals(bytesOf(key, MIB)), key);
  const into = Buffer.alloc(3 * MIB);
  assert.equal(await reader.getInto(keys[1] as string, into), MIB);
  assert.ok(into.subarray(0, MIB).equals(bytesOf(keys[1] as string, MIB)));
  assert.equal((await reader.stat(keys[0] as string))?.sizeBytes, MIB);
  assert.equal(await reader.exists(keys[0] as string), true);
  assert.equal(reader.getIntoSync(keys[2] as string, into), MIB);
  assert.ok((await metric(master, "svc_store_offloaded_keys_total")) >= 12);
  const disks = (await (await fetch(`${master.url}/api/v1/disks`)).json()) as { disks: { objects: number; readable: boolean }[] };
  assert.deepEqual(
    disks.disks.map(({ objects, readable }) => [objects, readable]),
    [[12, true]],
  );
  await reader.remove(keys[3] as string, true);
  await until("its file goes too", () => (filesIn(folder.path).length === 11 ? true : undefined));
});

void test("a restart of the owner brings its objects back with their pins, groups and checksums", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: [...OFFLOAD, "--client_ttl=8s", "--store.suspect_after_ms=5000"] });
  await using reader = await openClient(master);
  const ssd = { segmentBytes: 8 * MIB, ssdFolder: folder.path, ssdBytes: 64 * MIB };
  const first = await startClient(master, ssd);
  for (const key of ["a", "b", "c"]) {
    await reader.put(key, bytesOf(key, 100_003), { hardPin: key === "c", group: "g" });
    await onDisk(master, key);
  }
  const before = await reader.stat("c");
  await first.kill();
  await using _second = await startClient(master, ssd);
  for (const key of ["a", "b", "c"]) {
    const bytes = await until(`${key} is there again`, async () => reader.get(key).catch(() => undefined));
    assert.ok(bytes.equals(bytesOf(key, 100_003)));
  }
  assert.notEqual(before?.checksum, undefined);
  assert.equal((await reader.stat("c"))?.checksum, before?.checksum);
  const objects = (await (await fetch(`${master.url}/api/v1/objects`)).json()) as { objects: { key: string; hard_pinned: boolean }[] };
  assert.deepEqual(objects.objects.map(({ key, hard_pinned }) => `${key} ${hard_pinned}`).sort(), ["a false", "b false", "c true"]);
});

void test("a master that is killed knows after its restart the objects on disks, and removed ones stay removed", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: OFFLOAD });
  await using _holder = await startClient(master, { segmentBytes: 3 * MIB, ssdFolder: folder.path, ssdBytes: 64 * MIB });
  await using reader = await openClient(master);
  const keys = Array.from({ length: 8 }, (_, at) => `key-${at}`);
  for (const key of keys) {
    await reader.put(key, bytesOf(key, MIB));
    await onDisk(master, key);
  }
  await reader.remove("key-7", true);
  await master.kill();
  await master.start(OFFLOAD);
  for (const key of keys.slice(0, 7)) {
    await until(`${key} can be read again`, async () => (await reader.get(key))?.equals(bytesOf(key, MIB)) || undefined);
  }
  assert.equal(await reader.get("key-7"), undefined);
  await until("the removed one's file is gone", () => (filesIn(folder.path).length === 7 ? true : undefined));
});

void test("with offload_on_evict only objects that exceed memory are written to disk, and their memory is free afterwards", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: [...OFFLOAD, "--offload_on_evict=true"] });
  await using _holder = await startClient(master, { segmentBytes: 8 * MIB, ssdFolder: folder.path, ssdBytes: 256 * MIB });
  await using writer = await openClient(master);
  await writer.put("alone", bytesOf("alone", 1000));
  const keys = Array.from({ length: 24 }, (_, at) => `wave-${at}`);
  for (const key of keys) assert.equal(await writer.put(key, bytesOf(key, MIB)), true, key);
  for (const key of keys) assert.ok((await writer.get(key))?.equals(bytesOf(key, MIB)), key);
  const evicted = await metric(master, "svc_store_offloaded_keys_total");
  assert.ok(evicted >= 16 && evicted <= 25, `${evicted} went to disk`);
});

void test("promotion_on_hit moves an object that is often read from disk back to memory", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: [...OFFLOAD, "--promotion_on_hit=true", "--promotion_threshold=3"] });
  await using holder = await startClient(master, { segmentBytes: 4 * MIB, ssdFolder: folder.path, ssdBytes: 64 * MIB });
  await using reader = await openClient(master);
  for (const key of ["x", "y", "z", "v", "w", "u"]) {
    await reader.put(key, bytesOf(key, MIB));
    await onDisk(master, key);
  }
  assert.deepEqual((await entryOf(master, "x")).values, []);
  await until("it is in memory again", async () => {
    assert.ok((await reader.get("x"))?.equals(bytesOf("x", MIB)));
    return (await entryOf(master, "x")).values.length === 1 || undefined;
  });
  assert.ok((await reader.get("x"))?.equals(bytesOf("x", MIB)));
  assert.equal((await metric(master, "svc_store_promoted_keys_total")) >= 1, true);
  await holder.kill();
});

void test("a disk keeps to its size: the oldest objects are evicted, and the master no longer names them", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: OFFLOAD });
  await using _holder = await startClient(master, { segmentBytes: 3 * MIB, ssdFolder: folder.path, ssdBytes: 6 * MIB });
  await using writer = await openClient(master);
  for (let at = 0; at < 12; at++) {
    await writer.put(`old-${at}`, bytesOf(`old-${at}`, MIB));
    await onDisk(master, `old-${at}`);
    assert.ok(filesIn(folder.path).length <= 5);
  }
  assert.equal(await writer.get("old-0"), undefined);
  assert.equal((await writer.whyMissing("old-0")).reason, "evicted");
  assert.ok((await writer.get("old-11"))?.equals(bytesOf("old-11", MIB)));
});

void test("a client's disk is unmounted at once: readers miss, and the files stay for the next process", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: OFFLOAD });
  const ssd = { segmentBytes: 2 * MIB, ssdFolder: folder.path, ssdBytes: 64 * MIB };
  const holder: ClientProcess = await startClient(master, ssd);
  await using reader = await openClient(master);
  for (const key of ["p", "q", "r"]) {
    await reader.put(key, bytesOf(key, MIB));
    await onDisk(master, key);
  }
  await holder.ask("unmountDisk", 0);
  await holder.ask("unmountDisk", 0);
  assert.equal((await entryOf(master, "p")).ok, false);
  assert.equal(await reader.get("p"), undefined);
  await holder.kill();
  assert.equal(filesIn(folder.path).length, 3);
  await using _next = await startClient(master, ssd);
  await until("it is there again", async () => (await reader.get("p"))?.equals(bytesOf("p", MIB)) || undefined);
});

void test("thousands of small objects, stored in batches, are all readable from disk", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: OFFLOAD });
  await using _holder = await startClient(master, { segmentBytes: 4 * MIB, ssdFolder: folder.path, ssdBytes: 64 * MIB });
  await using writer = await openClient(master);
  const value = (at: number) => createHash("sha512").update(`${at}`).digest();
  for (let from = 0; from < 2000; from += 200)
    await writer.putBatch(Array.from({ length: 200 }, (_, at) => ({ key: `small/${from + at}`, value: value(from + at) })));
  await until("all are on disk", () => (filesIn(folder.path).length === 2000 ? true : undefined));
  const found = await writer.getBatch(Array.from({ length: 2000 }, (_, at) => `small/${at}`));
  for (const [at, bytes] of found.entries()) assert.ok(Buffer.isBuffer(bytes) && bytes.equals(value(at)), `small/${at}`);
  assert.equal(readdirSync(join(folder.path, "pending")).length, 0);
});
