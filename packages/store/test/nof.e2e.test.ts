// NOF segments on a block device, on a full disk, and across a power failure.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { openClient, startClient } from "./client.ts";
import { imageDisk, needsMounts, smallDisk } from "./disk.ts";
import { metric } from "./folder.ts";
import { startMaster } from "./master.ts";
import { MIB, nofDetails, nofEntry, nofFlags } from "./nof.ts";
import { bytesOf, makeFolder } from "./ssd.ts";

const only = { replicas: 0, nofReplicas: 1 };

function loopDevice(image: string): { readonly path: string } & Disposable {
  const path = execFileSync("losetup", ["--find", "--show", image], { encoding: "utf8" }).trim();
  return { path, [Symbol.dispose]: () => void execFileSync("losetup", ["--detach", path]) };
}

void test("a block device is a NOF segment of its whole size, and has its objects after its holder was killed", needsMounts, async () => {
  await using folder = makeFolder();
  const image = join(folder.path, "image");
  writeFileSync(image, "");
  truncateSync(image, 24 * MIB);
  using device = loopDevice(image);
  await using master = await startMaster({ flags: nofFlags() });
  await using client = await openClient(master, { timeoutMs: 60_000 });
  const holder = await startClient(master, { nof: { file: device.path } });
  assert.equal((await nofDetails(master))[0]?.size_bytes, 24 * MIB - 4096);
  const keys = Array.from({ length: 12 }, (_, at) => `key-${at}`);
  for (const [at, key] of keys.entries()) assert.equal(await client.put(key, bytesOf(key, MIB + at), only), true);
  for (const [at, key] of keys.entries()) assert.ok((await client.get(key))?.equals(bytesOf(key, MIB + at)), key);
  await holder.kill();
  await using _again = await startClient(master, { nof: { file: device.path } });
  for (const [at, key] of keys.entries()) assert.ok((await client.get(key))?.equals(bytesOf(key, MIB + at)), key);
  execFileSync("mkfs.ext4", ["-q", "-F", image]);
  await assert.rejects(openClient(master, { nof: { file: image } }), { name: "SETTING_INVALID", message: /holds something else/ });
});

void test("on a full disk a put succeeds in memory alone, and objects in the NOF segment stay readable", needsMounts, async () => {
  using disk = smallDisk(8 * MIB);
  await using master = await startMaster({ flags: nofFlags() });
  await using _memory = await startClient(master, { segmentBytes: 64 * MIB });
  await using _holder = await startClient(master, { nof: { file: join(disk.folder, "namespace"), bytes: 64 * MIB } });
  await using client = await openClient(master, { timeoutMs: 60_000, leasesAhead: false });
  const keys = Array.from({ length: 20 }, (_, at) => `key-${at}`);
  for (const key of keys) assert.equal(await client.put(key, bytesOf(key, MIB), { nofReplicas: 1 }), true, key);
  const entries = await Promise.all(keys.map((key) => nofEntry(master, key)));
  assert.ok(entries.every(({ values }) => values?.length === 1));
  const stored = keys.filter((_, at) => entries[at]?.nof_values?.length === 1);
  assert.ok(stored.length >= 4 && stored.length < 8, `${stored.length} of them found room on the disk`);
  await using reader = await openClient(master, { knownPlaces: 0 });
  for (const key of keys) assert.ok((await reader.get(key))?.equals(bytesOf(key, MIB)), key);
  await _memory.kill("SIGTERM");
  await until("memory is not used", async () => ((await nofEntry(master, keys[0] as string)).values?.length === 0 ? true : undefined));
  for (const key of stored) assert.ok((await reader.get(key))?.equals(bytesOf(key, MIB)), `${key} from the disk`);
});

void test("after a power failure every object of a NOF segment is right or a miss, and a miss can be stored again", needsMounts, async () => {
  using disk = imageDisk(96 * MIB);
  await using master = await startMaster({ flags: nofFlags("--client_ttl=60s") });
  const holder = await startClient(master, { nof: { file: join(disk.folder, "namespace"), bytes: 64 * MIB } });
  await using client = await openClient(master, { timeoutMs: 60_000, knownPlaces: 0, leasesAhead: false });
  const keys = Array.from({ length: 60 }, (_, at) => `key-${at}`);
  const size = (at: number) => (at % 2 === 0 ? 5000 : 300_000);
  for (const [at, key] of keys.slice(0, 30).entries()) await client.put(key, bytesOf(key, size(at)), only);
  execFileSync("sync", ["--file-system", disk.folder]);
  for (const [at, key] of keys.slice(30).entries()) await client.put(key, bytesOf(key, size(at + 30)), only);
  const cut = disk.cutPower(holder.pid);
  await holder.kill();
  await using _again = await startClient(master, { nof: { file: join(cut.folder, "namespace") } });
  let missed = 0;
  for (const [at, key] of keys.entries()) {
    const found = await client.get(key);
    if (found !== undefined) assert.ok(found.equals(bytesOf(key, size(at))), `wrong bytes of ${key}`);
    else {
      assert.ok(at >= 30, `${key} was on the disk`);
      missed++;
      assert.equal((await client.whyMissing(key)).reason, "checksum", key);
      assert.equal(await client.put(key, bytesOf(key, size(at)), only), true, key);
    }
    assert.ok((await client.get(key))?.equals(bytesOf(key, size(at))), key);
  }
  assert.equal(await metric(master, "svc_store_nof_damaged_replicas_total"), missed);
});
