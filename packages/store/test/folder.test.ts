// The shared folder: what a put stores there, how it is read once the object has left memory, and what deletes its files.
import assert from "node:assert/strict";
import { appendFileSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { fileTroubleOf, SharedFiles } from "../src/files/shared-files.ts";
import { openClient, startClient } from "./client.ts";
import { entryOf, filesBelow, folderFlags, MIB, metric, untilFiles } from "./folder.ts";
import { startMaster } from "./master.ts";
import { bytesOf, makeFolder } from "./ssd.ts";

void test("a put stores a file in the shared folder too, and readers on any host read it from there once memory is full", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: folderFlags(folder.path) });
  await using _holder = await startClient(master, { segmentBytes: 4 * MIB });
  await using writer = await openClient(master);
  await using reader = await openClient(master, { knownPlaces: 0 });
  await using blind = await openClient(master, { usesSharedFolder: false });
  const keys = Array.from({ length: 12 }, (_, at) => `block-${at}`);
  for (const key of keys) assert.equal(await writer.put(key, bytesOf(key, MIB)), true, key);
  const entry = await entryOf(master, "block-0");
  assert.deepEqual(entry.values, [], "twelve of them do not fit in the memory: the first one is a file alone");
  assert.equal(entry.disk_values?.[0]?.object_size, MIB);
  const path = entry.disk_values?.[0]?.file_path ?? "";
  assert.ok(path.startsWith(`${folder.path}/svc_cluster/`), path);
  assert.ok(readFileSync(path).equals(bytesOf("block-0", MIB)), "the file has the object's bytes and nothing else");
  assert.equal("nof_values" in entry || "local_disk_values" in entry, false);
  for (const key of keys) assert.ok((await reader.get(key))?.equals(bytesOf(key, MIB)), key);
  const into = Buffer.alloc(2 * MIB);
  assert.equal(reader.getIntoSync("block-1", into), MIB);
  assert.ok(into.subarray(0, MIB).equals(bytesOf("block-1", MIB)));
  const many = await reader.getBatch(keys);
  for (const [at, bytes] of many.entries()) assert.ok(Buffer.isBuffer(bytes) && bytes.equals(bytesOf(keys[at] as string, MIB)));
  assert.equal(await reader.size("block-0"), MIB);
  assert.equal(await reader.exists("block-0"), true);
  assert.equal(await blind.get("block-0"), undefined, "a client that does not use the folder misses");
  assert.equal(await blind.put("alone", bytesOf("alone", 1000)), true);
  assert.equal((await entryOf(master, "alone")).disk_values, undefined);
  assert.equal(writer.putSync("at-once", bytesOf("at-once", 1000)), true);
  assert.equal((await entryOf(master, "at-once")).disk_values?.length, 1, "the forms that hold the thread store a file too");
  assert.equal(await metric(master, "svc_store_folder_files"), 13);
  const { shared_folder: shown, disks } = (await (await fetch(`${master.url}/api/v1/disks`)).json()) as Record<string, { objects: number }> & {
    disks: unknown[];
  };
  assert.deepEqual([shown?.objects, disks], [13, []]);
});

void test("a removal deletes the file, one by one, by pattern and all at once; an upsert replaces it", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: folderFlags(folder.path) });
  await using client = await openClient(master, { segmentBytes: 16 * MIB });
  for (const key of ["a", "b", "c-1", "c-2", "d"]) await client.put(key, bytesOf(key, 1000));
  await untilFiles(folder.path, 5);
  await client.remove("a", true);
  await untilFiles(folder.path, 4);
  assert.equal(await client.removeMatching("^c-", true), 2);
  await untilFiles(folder.path, 2);
  await client.upsert("b", bytesOf("other", 5000));
  await until("the former file is gone", async () => {
    const files = filesBelow(folder.path);
    return files.length === 2 && files.some((path) => readFileSync(path).equals(bytesOf("other", 5000))) ? true : undefined;
  });
  assert.equal(await client.removeAll(true), 2);
  await untilFiles(folder.path, 0);
  assert.equal(await metric(master, "svc_store_folder_dropped_files"), 0);
});

void test("a restarted master knows its files, serves them without their writer, and does not know removed ones", async () => {
  await using folder = makeFolder();
  const flags = folderFlags(folder.path, "--store.log_file_bytes=65536", "--store.snapshot_log_bytes=65536");
  await using master = await startMaster({ flags });
  const holder = await startClient(master, { segmentBytes: 4 * MIB });
  {
    await using writer = await openClient(master);
    for (let at = 0; at < 600; at++) await writer.put(`key-${at}`, bytesOf(`key-${at}`, 1000));
    await writer.remove("key-7", true);
  }
  await until("a snapshot was taken", async () => ((await metric(master, "svc_store_snapshots_total")) > 0 ? true : undefined));
  await master.kill();
  // Without the holder's memory only the files remain.
  await holder.kill();
  await master.start();
  await using reader = await openClient(master);
  for (const at of [0, 6, 8, 599]) assert.ok((await reader.get(`key-${at}`))?.equals(bytesOf(`key-${at}`, 1000)), `key-${at}`);
  assert.equal(await reader.get("key-7"), undefined);
  assert.equal((await entryOf(master, "key-0")).disk_values?.length, 1);
  await untilFiles(folder.path, 599);
  await master.kill();
  await master.start();
  assert.ok((await reader.get("key-0"))?.equals(bytesOf("key-0", 1000)), "also from a log that was read twice");
});

void test("a damaged file is a miss with the reason checksum, a missing one a plain miss, and neither is named again", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: folderFlags(folder.path) });
  const holder = await openClient(master, { segmentBytes: 16 * MIB });
  await using client = await openClient(master);
  const pathOf = async (key: string) => (await entryOf(master, key)).disk_values?.[0]?.file_path ?? "";
  for (const key of ["flipped", "short", "long", "gone", "fine"]) await client.put(key, bytesOf(key, 10_000));
  const bytes = readFileSync(await pathOf("flipped"));
  bytes[5000] = (bytes[5000] ?? 0) ^ 1;
  writeFileSync(await pathOf("flipped"), bytes);
  writeFileSync(await pathOf("short"), bytes.subarray(0, 9999));
  appendFileSync(await pathOf("long"), "x");
  rmSync(await pathOf("gone"));
  await holder.close();
  await until("nothing is in memory", async () => ((await entryOf(master, "fine")).values?.length === 0 ? true : undefined));
  for (const key of ["flipped", "short", "long"]) {
    assert.equal(await client.get(key), undefined, key);
    assert.equal((await client.whyMissing(key)).reason, "checksum", key);
    await until(`the master names ${key} no more`, async () => ((await entryOf(master, key)).ok ? undefined : true));
  }
  assert.equal(await client.get("gone"), undefined);
  await until("the master names it no more", async () => ((await entryOf(master, "gone")).ok ? undefined : true));
  await using other = await openClient(master);
  assert.equal((await other.whyMissing("flipped")).reason, "checksum", "the master remembers it");
  assert.equal((await other.whyMissing("gone")).reason, "holder_lost");
  assert.ok((await client.get("fine"))?.equals(bytesOf("fine", 10_000)));
  await untilFiles(folder.path, 1);
});

void test("keys of any bytes have safe file names, and no name on the wire leads out of the folder", async () => {
  await using folder = makeFolder();
  await using outside = makeFolder();
  await using master = await startMaster({ flags: folderFlags(folder.path) });
  const holder = await startClient(master, { segmentBytes: 16 * MIB });
  await using client = await openClient(master);
  const keys = ["../../../etc/passwd", "/absolute", "a/b//c", ".", "..", "nul\0inside", "line\nbreak", "k".repeat(300), "ключ", 'a\\b:*?"<>|'];
  for (const key of keys) assert.equal(await client.put(key, bytesOf(key, 500)), true, JSON.stringify(key));
  assert.equal(filesBelow(folder.path).length, keys.length);
  for (const path of filesBelow(folder.path)) assert.match(path.slice(folder.path.length), /^\/svc_cluster\/[0-9a-f]{16}\/[0-9a-f]{2}\/[0-9a-f]{16}$/);
  await holder.kill("SIGTERM");
  for (const key of keys) assert.ok((await client.get(key))?.equals(bytesOf(key, 500)), JSON.stringify(key));

  const root = join(folder.path, "svc_cluster");
  const files = new SharedFiles(root);
  for (const path of [
    "/etc/passwd",
    `${root}/../x`,
    `${root}/a/../../x`,
    `${root}//x`,
    `${root}/./x`,
    `${root}/x/`,
    `${root}x/y`,
    `${root}/a\0b`,
    "relative",
    "",
  ])
    assert.equal(files.nameOf(path), undefined, path);
  assert.equal(files.nameOf(`${root}/aa/bb`), "aa/bb");
  writeFileSync(join(outside.path, "secret"), "secret");
  symlinkSync(outside.path, join(root, "away"));
  symlinkSync(join(outside.path, "secret"), join(root, "link"));
  for (const name of ["away/secret", "link", "../secret", "a/../../b", "", "/etc/passwd"]) {
    assert.notEqual(await files.read(name, 6, new BigUint64Array(), 1000), undefined, name);
    if (name !== "link") await assert.rejects(files.remove(name), (error) => fileTroubleOf(error) === "failed", name);
  }
  assert.equal(readFileSync(join(outside.path, "secret"), "utf8"), "secret");
  files.close();
});

void test("the oldest files are evicted at the quota, and without eviction puts stay in memory alone", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: folderFlags(folder.path, `--quota_bytes=${4 * MIB}`) });
  await using client = await openClient(master, { segmentBytes: 64 * MIB });
  await until("the quota is known", async () => ((await metric(master, "svc_store_folder_quota_bytes")) === 4 * MIB ? true : undefined));
  for (let at = 0; at < 10; at++) await client.put(`old-${at}`, bytesOf(`old-${at}`, MIB));
  assert.equal((await entryOf(master, "old-5")).disk_values, undefined);
  assert.equal((await entryOf(master, "old-5")).values?.length, 1, "memory has it still");
  for (let at = 6; at < 10; at++) assert.equal((await entryOf(master, `old-${at}`)).disk_values?.length, 1);
  await untilFiles(folder.path, 4);
  assert.equal(await metric(master, "svc_store_folder_evicted_keys_total"), 6);
  assert.equal(await client.put("too large", bytesOf("too large", 5 * MIB)), true);
  assert.equal((await entryOf(master, "too large")).disk_values, undefined);
  await master.kill();
  await master.start(["--enable_disk_eviction=false"]);
  await until("the quota is known", async () => ((await metric(master, "svc_store_folder_quota_bytes")) === 4 * MIB ? true : undefined));
  await until("a put goes through", () => client.put("more", bytesOf("more", MIB)).catch(() => undefined));
  assert.equal((await entryOf(master, "more")).disk_values, undefined);
  assert.equal((await entryOf(master, "old-9")).disk_values?.length, 1);
});
