// Faults under the SSD tier: a disk that is full, corrupts data, goes read-only
// or stops answering; and owners and masters that are killed at any moment.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { closeSync, fstatSync, openSync, readSync, writeSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { type ClientProcess, openClient, startClient } from "./client.ts";
import { imageDisk, needsMounts, smallDisk } from "./disk.ts";
import { startMaster, type TestMaster } from "./master.ts";
import { bytesOf, filesIn, makeFolder } from "./ssd.ts";

const MIB = 2 ** 20;
const OFFLOAD = ["--enable_offload=true", "--default_kv_lease_ttl=200"];
const stored = async (master: TestMaster) => Number(/^svc_store_offloaded_keys_total (\S+)$/m.exec(await (await fetch(`${master.url}/metrics`)).text())?.[1]);
const trouble = async (holder: ClientProcess) => (await holder.ask<{ trouble: string }>("disk")).trouble;

void test("a full disk accepts no objects and loses none: memory continues, and objects are stored once there is space", needsMounts, async () => {
  using disk = smallDisk(8 * MIB);
  await using master = await startMaster({ flags: OFFLOAD });
  await using holder = await startClient(master, { segmentBytes: 32 * MIB, ssdFolder: join(disk.folder, "objects"), ssdBytes: 64 * MIB });
  await using writer = await openClient(master);
  const keys = Array.from({ length: 16 }, (_, at) => `full-${at}`);
  for (const key of keys) assert.equal(await writer.put(key, bytesOf(key, MIB)), true, key);
  await until("the owner says that there is no room", async () => ((await trouble(holder)).includes("no room") ? true : undefined));
  for (const key of keys) assert.ok((await writer.get(key))?.equals(bytesOf(key, MIB)), key);
  const before = await stored(master);
  assert.ok(before >= 1 && before < 8);
  execFileSync("mount", ["-o", "remount,size=64m", disk.folder]);
  await until("new objects are stored again", async () => {
    const key = `later-${Math.random()}`;
    assert.equal(await writer.put(key, bytesOf(key, 1000)), true);
    return (await stored(master)) > before ? true : undefined;
  });
});

void test("a flipped bit in a file is a miss with the reason checksum, never wrong bytes, and the file is deleted", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: OFFLOAD });
  await using _holder = await startClient(master, { segmentBytes: 2 * MIB, ssdFolder: folder.path, ssdBytes: 64 * MIB });
  await using reader = await openClient(master);
  await using other = await openClient(master);
  for (const [at, key] of ["one", "two", "three", "four"].entries()) {
    await reader.put(key, bytesOf(key, MIB));
    // Wait before the next put needs this object's memory.
    await until("it is on disk", async () => ((await stored(master)) === at + 1 ? true : undefined));
  }
  const damaged = filesIn(folder.path).sort()[0] as string;
  const fd = openSync(join(folder.path, damaged), "r+");
  const byte = Buffer.alloc(1);
  readSync(fd, byte, 0, 1, 400_000);
  byte[0] = (byte[0] as number) ^ 4;
  writeSync(fd, byte, 0, 1, 400_000);
  assert.equal(fstatSync(fd).size > MIB, true);
  closeSync(fd);
  assert.equal(await reader.get("one"), undefined);
  assert.equal((await reader.whyMissing("one")).reason, "checksum");
  await until("the owner has looked", async () => ((await other.whyMissing("one")).reason === "checksum" ? true : undefined));
  assert.equal(await other.get("one"), undefined);
  await until("the file is gone", () => (filesIn(folder.path).includes(damaged) ? undefined : true));
  assert.ok((await reader.get("two"))?.equals(bytesOf("two", MIB)));
  // Stored again, the key is readable again.
  assert.equal(await reader.put("one", bytesOf("one", 1000)), true);
  assert.ok((await other.get("one"))?.equals(bytesOf("one", 1000)));
});

void test("a device that becomes read-only stays readable, and accepts objects again once it is writable", needsMounts, async () => {
  using disk = imageDisk(64 * MIB);
  await using master = await startMaster({ flags: OFFLOAD });
  await using holder = await startClient(master, { segmentBytes: 4 * MIB, ssdFolder: join(disk.folder, "objects"), ssdBytes: 32 * MIB });
  await using writer = await openClient(master);
  await writer.put("before", bytesOf("before", MIB));
  await until("it is on disk", async () => ((await stored(master)) === 1 ? true : undefined));
  execFileSync("mount", ["-o", "remount,ro", disk.folder]);
  await writer.put("during", bytesOf("during", MIB));
  await until("the owner says why", async () => (/read-only/i.test(await trouble(holder)) ? true : undefined));
  for (const key of ["x", "y", "z"]) await writer.put(key, bytesOf(key, MIB));
  assert.ok((await writer.get("before"))?.equals(bytesOf("before", MIB)));
  execFileSync("mount", ["-o", "remount,rw", disk.folder]);
  await until("objects are stored again", async () => {
    const key = `after-${Math.random()}`;
    await writer.put(key, bytesOf(key, 1000));
    return (await stored(master)) > 1 ? true : undefined;
  });
});

void test("a directory that stops answering is unmounted within its bound, while the owner's memory stays in use, and comes back", needsMounts, async () => {
  using disk = imageDisk(64 * MIB);
  await using master = await startMaster({ flags: OFFLOAD });
  await using _holder = await startClient(master, { segmentBytes: 16 * MIB, ssdFolder: join(disk.folder, "objects"), ssdBytes: 32 * MIB });
  await using writer = await openClient(master);
  await writer.put("before", bytesOf("before", MIB));
  await until("it is on disk", async () => ((await stored(master)) === 1 ? true : undefined));
  const disks = async () => ((await (await fetch(`${master.url}/api/v1/disks`)).json()) as { disks: unknown[] }).disks.length;
  execFileSync("fsfreeze", ["--freeze", disk.folder]);
  try {
    await writer.put("during", bytesOf("during", MIB));
    await until("the disk is withdrawn", async () => {
      assert.ok((await writer.get("during"))?.equals(bytesOf("during", MIB)));
      assert.equal(await writer.put(`more-${Math.random()}`, bytesOf("more", 1000)), true);
      return (await disks()) === 0 ? true : undefined;
    });
    assert.ok((await writer.get("before"))?.equals(bytesOf("before", MIB)), "it is in memory still");
  } finally {
    execFileSync("fsfreeze", ["--unfreeze", disk.folder]);
  }
  await until("the disk is mounted again", async () => ((await disks()) === 1 ? true : undefined));
  await until("objects are stored again", async () => ((await stored(master)) > 1 ? true : undefined));
});

void test("owners and masters that are killed at any moment leave complete objects or none, and never another's bytes", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: [...OFFLOAD, "--client_ttl=8s", "--store.suspect_after_ms=4000"] });
  const ssd = { segmentBytes: 8 * MIB, ssdFolder: folder.path, ssdBytes: 16 * MIB };
  await using writer = await openClient(master, { timeoutMs: 20_000 });
  let holder = await startClient(master, ssd);
  try {
    for (let round = 0; round < 8; round++) {
      const keys = Array.from({ length: 24 }, (_, at) => `crash-${round}-${at}`);
      const puts = keys.map((key, at) => writer.put(key, bytesOf(key, 100_000 + at * 7919)).catch(() => false));
      await new Promise((resolve) => setTimeout(resolve, 20 + Math.random() * 250));
      if (round % 3 === 2) {
        await master.kill();
        await master.start();
      } else {
        await holder.kill();
        holder = await startClient(master, ssd);
      }
      await Promise.all(puts);
      for (let old = 0; old <= round; old++)
        for (let at = 0; at < 24; at += 5) {
          const key = `crash-${old}-${at}`;
          const bytes = await writer.get(key).catch(() => undefined);
          if (bytes !== undefined) assert.ok(bytes.equals(bytesOf(key, 100_000 + at * 7919)), key);
        }
    }
    await until("a last one is stored", async () => (await writer.put("last", bytesOf("last", 5000)).catch(() => false)) || undefined);
    const last = await until("the last one is read", async () => writer.get("last").catch(() => undefined));
    assert.ok(last.equals(bytesOf("last", 5000)));
  } finally {
    await holder.kill();
  }
});
