// The shared folder with Mooncake's unmodified client, on a full disk, with writers that are killed, and with a standby that takes over.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { openClient, startClient } from "./client.ts";
import { needsMounts, smallDisk } from "./disk.ts";
import { entryOf, filesBelow, folderFlags, MIB, metric, untilFiles } from "./folder.ts";
import { startCluster } from "./ha-cluster.ts";
import { quietFlags } from "./ha-rounds.ts";
import { startHolder, bytesOf as value } from "./holder.ts";
import { startMaster } from "./master.ts";
import { bytesOf, makeFolder } from "./ssd.ts";

const needsWheel = needs("python-clients", "python3");

void test("Mooncake's client stores files in the folder, and reads its own and our client's once memory is full", needsWheel, async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: folderFlags(folder.path) });
  await using holder = await startHolder({ master: master.rpcPort, segmentBytes: 16 * MIB });
  await using ours = await openClient(master);
  assert.equal(await holder.put("k", "hello"), 0);
  assert.equal(await holder.call("put_batch", ["b1", "b2"], [value("one"), value("two")]), 0);
  assert.equal(await holder.call("upsert", "u", value("up")), 0);
  assert.equal(await ours.put("ours", Buffer.from("of ours")), true);
  const keys = ["k", "b1", "b2", "u", "ours"];
  for (const key of keys) await until(`${key} is a file`, async () => ((await entryOf(master, key)).disk_values?.length === 1 ? true : undefined));
  let at = 0;
  await until("memory has none of them", async () => {
    await holder.put(`fill-${at++}`, "x".repeat(MIB));
    const entries = await Promise.all(keys.map((key) => entryOf(master, key)));
    return entries.every(({ values = [] }) => values.length === 0) ? true : undefined;
  });
  assert.deepEqual(await Promise.all(keys.map((key) => holder.get(key))), ["hello", "one", "two", "up", "of ours"]);
  for (const [key, text] of [
    ["k", "hello"],
    ["b2", "two"],
    ["ours", "of ours"],
  ] as const)
    assert.equal((await ours.get(key))?.toString(), text);
  assert.equal(readFileSync((await entryOf(master, "k")).disk_values?.[0]?.file_path ?? "", "utf8"), "hello");
  assert.equal(await holder.call("remove", "k", true), 0);
  assert.ok((await holder.call<number>("remove_all", true)) >= 4);
  await untilFiles(folder.path, 0);
});

void test("with a quota Mooncake's client and ours keep the folder small, and every read is right or a miss", needsWheel, async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: folderFlags(folder.path, `--quota_bytes=${8 * MIB}`) });
  await until("the quota is known", async () => ((await metric(master, "svc_store_folder_quota_bytes")) === 8 * MIB ? true : undefined));
  await using holder = await startHolder({ master: master.rpcPort, segmentBytes: 16 * MIB });
  await using ours = await openClient(master);
  const text = (at: number) => String.fromCharCode(97 + (at % 26)).repeat(MIB);
  for (let at = 0; at < 40; at++) {
    if (at % 2 === 0) await holder.put(`key-${at}`, text(at));
    else await ours.put(`key-${at}`, Buffer.from(text(at))).catch(() => undefined);
    assert.ok((await metric(master, "svc_store_folder_used_bytes")) <= 8 * MIB);
  }
  let found = 0;
  for (let at = 0; at < 40; at++) {
    const [theirs, own] = [await holder.get(`key-${at}`), await ours.get(`key-${at}`)];
    assert.ok(theirs === "" || theirs === text(at), `key-${at}`);
    assert.ok(own === undefined || own.toString() === text(at), `key-${at}`);
    found += own === undefined ? 0 : 1;
  }
  assert.ok(found >= 8, `${found} of 40 were there`);
  await until("the files that made room are gone", async () => (filesBelow(folder.path).length <= 8 ? true : undefined));
});

void test("on a full file system a put succeeds in memory without a file; later files are stored again", needsMounts, async () => {
  using disk = smallDisk(4 * MIB);
  await using master = await startMaster({ flags: folderFlags(disk.folder, "--quota_bytes=1000000000") });
  await using client = await openClient(master, { segmentBytes: 64 * MIB });
  for (let at = 0; at < 8; at++) assert.equal(await client.put(`full-${at}`, bytesOf(`full-${at}`, MIB)), true);
  for (let at = 0; at < 8; at++) assert.ok((await client.get(`full-${at}`))?.equals(bytesOf(`full-${at}`, MIB)));
  const named = await Promise.all(Array.from({ length: 8 }, async (_, at) => (await entryOf(master, `full-${at}`)).disk_values?.length ?? 0));
  const stored = named.reduce((sum, each) => sum + each, 0);
  assert.ok(stored >= 1 && stored < 8, `${stored} of 8 are files`);
  assert.equal(await metric(master, "svc_store_folder_files"), stored);
  assert.ok((await metric(master, "svc_store_folder_failures_total")) >= 1);
  await untilFiles(disk.folder, stored);
  await client.remove("full-0", true);
  await until("the room is used", async () => {
    const key = `later-${Math.random()}`;
    assert.equal(await client.put(key, bytesOf(key, 1000)), true);
    return (await entryOf(master, key)).disk_values?.length === 1 ? true : undefined;
  });
});

void test("writers that are killed at any moment leave no object with incomplete bytes, and no file without an object", async () => {
  await using folder = makeFolder();
  const flags = folderFlags(folder.path, "--put_start_discard_timeout_sec=1", "--client_ttl=2s", "--store.suspect_after_ms=1000");
  await using master = await startMaster({ flags });
  await using reader = await openClient(master, { segmentBytes: 256 * MIB, knownPlaces: 0 });
  for (let round = 0; round < 5; round++) {
    const writer = await startClient(master);
    const wanted = Array.from({ length: 40 }, (_, at) => `r${round}-${at}`);
    const puts = wanted.map((key) => writer.ask("put", key, bytesOf(key, 200_000).toString("base64")).catch(() => undefined));
    await until("some are stored", async () => ((await entryOf(master, `r${round}-${round * 5}`)).ok ? true : undefined), 5);
    await writer.kill();
    await Promise.all(puts);
  }
  await until("what was unfinished is given up", async () => {
    const { objects } = (await (await fetch(`${master.url}/api/v1/objects`)).json()) as { objects: { key: string; complete: boolean }[] };
    const files = await metric(master, "svc_store_folder_files");
    const named = await Promise.all(objects.map(async ({ key }) => (await entryOf(master, key)).disk_values?.length ?? 0));
    return named.reduce((sum, each) => sum + each, 0) === files && filesBelow(folder.path).length === files ? true : undefined;
  });
  const { objects } = (await (await fetch(`${master.url}/api/v1/objects`)).json()) as { objects: { key: string }[] };
  assert.ok(objects.length >= 15);
  for (const { key } of objects) {
    assert.ok((await reader.get(key))?.equals(bytesOf(key, 200_000)), key);
    const [file] = (await entryOf(master, key)).disk_values ?? [];
    if (file !== undefined) assert.ok(readFileSync(file.file_path).equals(bytesOf(key, 200_000)), key);
  }
});

void test("a standby knows the files of its leader, serves them once it leads, and is refused by name with another folder", async () => {
  await using folder = makeFolder();
  const flags = [...quietFlags, ...folderFlags(folder.path)];
  await using cluster = await startCluster({ flags });
  const first = await cluster.inSync(1);
  const holder = await openClient(first, { segmentBytes: 16 * MIB });
  for (let at = 0; at < 20; at++) await holder.put(`key-${at}`, bytesOf(`key-${at}`, 5000));
  await holder.remove("key-3", true);
  await holder.close();
  await first.kill();
  const second = await cluster.leader();
  assert.notEqual(second.name, first.name);
  await using reader = await openClient(second);
  for (const at of [0, 2, 4, 19]) assert.ok((await reader.get(`key-${at}`))?.equals(bytesOf(`key-${at}`, 5000)), `key-${at}`);
  assert.equal(await reader.get("key-3"), undefined);
  await untilFiles(folder.path, 19);
  await first.start([`--root_fs_dir=${folder.path}/elsewhere`]);
  await until("it is refused by the setting's name", () => /store\.root_fs_dir is \S+ here and \S+elsewhere at the standby/.test(second.log()) || undefined);
});

void test("with a folder that is missing or not writable on this host, a put loses only its file", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: folderFlags(`${folder.path}/missing`) });
  await using client = await openClient(master, { segmentBytes: 16 * MIB });
  assert.equal(await client.put("k", Buffer.from("bytes")), true);
  assert.equal((await entryOf(master, "k")).disk_values, undefined);
  assert.equal((await client.get("k"))?.toString(), "bytes");
  await until("the master says so", () => (master.log().includes("root_fs_dir") ? true : undefined));
  assert.equal(filesBelow(folder.path).length, 0);
});
