// The device under the shared folder: one that becomes read-only, and one that loses its power.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { openClient, startClient } from "./client.ts";
import { imageDisk, needsMounts } from "./disk.ts";
import { entryOf, folderFlags, MIB } from "./folder.ts";
import { startMaster } from "./master.ts";
import { bytesOf } from "./ssd.ts";

void test(
  "a shared folder whose device becomes read-only stays readable, costs puts only their file, and accepts files again once it is writable",
  needsMounts,
  async () => {
    using disk = imageDisk(64 * MIB);
    await using master = await startMaster({ flags: folderFlags(disk.folder) });
    const holder = await startClient(master, { segmentBytes: 16 * MIB });
    await using client = await openClient(master, { knownPlaces: 0 });
    const isFile = async (key: string) => (await entryOf(master, key)).disk_values?.length === 1;
    assert.equal(await client.put("before", bytesOf("before", MIB)), true);
    await until("it is a file", async () => ((await isFile("before")) ? true : undefined));
    await holder.kill("SIGTERM");
    await until("memory is gone", async () => ((await entryOf(master, "before")).values?.length === 0 ? true : undefined));
    await using _second = await startClient(master, { segmentBytes: 16 * MIB });
    execFileSync("mount", ["-o", "remount,ro", disk.folder]);
    assert.ok((await client.get("before"))?.equals(bytesOf("before", MIB)));
    assert.equal(await client.put("during", bytesOf("during", MIB)), true);
    assert.ok((await client.get("during"))?.equals(bytesOf("during", MIB)));
    assert.equal(await isFile("during"), false);
    await client.remove("before", true);
    execFileSync("mount", ["-o", "remount,rw", disk.folder]);
    await until("files are stored again", async () => {
      const key = `after-${Math.random()}`;
      assert.equal(await client.put(key, bytesOf(key, 1000)), true);
      return (await isFile(key)) ? true : undefined;
    });
  },
);

void test(
  "after a power failure every object of the shared folder has its own bytes or is a miss, and those on the device are there",
  needsMounts,
  async (t) => {
    using disk = imageDisk(128 * MIB);
    await using master = await startMaster({ flags: folderFlags(disk.folder) });
    const holder = await startClient(master, { segmentBytes: 64 * MIB });
    await using writer = await startClient(master);
    const synced = Array.from({ length: 20 }, (_, at) => `synced-${at}`);
    const late = Array.from({ length: 40 }, (_, at) => `late-${at}`);
    const put = async (keys: readonly string[]) => {
      for (const key of keys) assert.equal(await writer.ask("put", key, bytesOf(key, 200_001).toString("base64")), true);
      for (const key of keys) await until(`${key} is a file`, async () => ((await entryOf(master, key)).disk_values?.length === 1 ? true : undefined));
    };
    await put(synced);
    execFileSync("sync", ["-f", disk.folder]);
    await put(late);
    using left = disk.cutPower(writer.pid);
    // The copy replaces the original folder, so that a client that opens now sees what was on the device.
    execFileSync("mount", ["--bind", left.folder, disk.folder]);
    try {
      await holder.kill();
      await until("memory is gone", async () => ((await entryOf(master, "late-0")).values?.length === 0 ? true : undefined));
      await using reader = await openClient(master, { knownPlaces: 0 });
      for (const key of synced) assert.ok((await reader.get(key))?.equals(bytesOf(key, 200_001)), key);
      let found = 0;
      for (const key of late) {
        const bytes = await reader.get(key);
        assert.ok(bytes === undefined || bytes.equals(bytesOf(key, 200_001)), `${key} has other bytes`);
        found += bytes === undefined ? 0 : 1;
      }
      t.diagnostic(`${found} of ${late.length} late ones were there`);
    } finally {
      execFileSync("umount", ["--lazy", disk.folder]);
    }
  },
);
