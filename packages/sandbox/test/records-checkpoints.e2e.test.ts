// Checkpoints on disk: complete or absent, verified byte for byte, collected when no longer needed.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { link, open, truncate, unlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { openLog } from "@svc/kit/log.ts";
import { openSpawner } from "@svc/kit/spawn.ts";
import { type Checkpoints, openCheckpoints } from "../src/records/checkpoints.ts";
import type { Checkpoint } from "../src/runtime/runtime.ts";

async function withCheckpoints(work: (checkpoints: Checkpoints, folder: string) => Promise<void>): Promise<void> {
  await using spawner = openSpawner();
  const folder = mkdtempSync(join(tmpdir(), "svc-checkpoints-"));
  const checkpoints = await openCheckpoints(folder, spawner, openLog("test", "fatal"));
  try {
    await work(checkpoints, folder);
  } finally {
    await checkpoints.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

const origin = { templateID: "base", envd: "envd-0", envdVersion: "0.6.13", initKey: "key" };

const write = async ({ directory }: Checkpoint) => {
  await writeFile(join(directory, "pages.img"), Buffer.alloc(1_000_000, 7));
  await writeFile(join(directory, "state.img"), "state");
};

void test("a checkpoint is found and verified with the files written to it", async () => {
  await withCheckpoints(async (checkpoints) => {
    const id = checkpoints.newID();
    const taken = await checkpoints.take(id, "memory", "gvisor", write, origin);
    assert.deepEqual(taken, { checkpointID: id, kind: "memory", sizeBytes: 1_000_005 });
    const found = await checkpoints.find(id);
    assert.equal(found.initKey, "key");
    assert.deepEqual(readdirSync(found.directory).sort(), ["pages.img", "state.img"]);
    await checkpoints.verify(id);
  });
});

void test("a fork's temporary checkpoint is never synced to disk; a kept one is, soon after it was acknowledged", async () => {
  await withCheckpoints(async (checkpoints) => {
    const isOnDisk = async (id: string) => existsSync(join((await checkpoints.find(id)).directory, "../on-disk"));
    const [kept, passing] = [checkpoints.newID(), checkpoints.newID()];
    await checkpoints.take(passing, "memory", "gvisor", write, { ...origin, isKept: false });
    await checkpoints.take(kept, "memory", "gvisor", write, origin);
    await checkpoints.verify(passing);
    await checkpoints.close();
    assert.deepEqual([await isOnDisk(kept), await isOnDisk(passing)], [true, false]);
  });
});

void test("one changed byte, a short file and a missing file are each reported as damage", async () => {
  const harms: [string, (files: string) => Promise<void>][] = [
    [
      "a changed byte",
      async (files) => {
        const file = await open(join(files, "pages.img"), "r+");
        await file.write(Buffer.from([8]), 0, 1, 500_000);
        await file.close();
      },
    ],
    ["a short file", (files) => truncate(join(files, "pages.img"), 999_999)],
    ["a missing file", (files) => unlink(join(files, "state.img"))],
    ["no manifest", (files) => unlink(join(files, "../manifest.json"))],
    ["a damaged manifest", (files) => truncate(join(files, "../manifest.json"), 40)],
  ];
  for (const [what, harm] of harms) {
    await withCheckpoints(async (checkpoints) => {
      const id = checkpoints.newID();
      await checkpoints.take(id, "memory", "gvisor", write, origin);
      await harm((await checkpoints.find(id)).directory);
      await assert.rejects(checkpoints.verify(id), { name: "SNAPSHOT_DAMAGED" }, what);
    });
  }
});

void test("a failed checkpoint leaves nothing, and its failure keeps its name", async () => {
  await withCheckpoints(async (checkpoints, folder) => {
    const full = Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });
    await assert.rejects(
      checkpoints.take(checkpoints.newID(), "memory", "gvisor", () => Promise.reject(full), origin),
      { name: "DISK_FULL" },
    );
    await assert.rejects(
      checkpoints.take(checkpoints.newID(), "memory", "gvisor", () => Promise.reject(new Error("runsc said no")), origin),
      { name: "CHECKPOINT_FAILED", message: /runsc said no/ },
    );
    assert.deepEqual(readdirSync(folder), []);
  });
});

void test("a checkpoint that is removed during starts from it disappears when the last start is done", async () => {
  await withCheckpoints(async (checkpoints) => {
    const id = checkpoints.newID();
    await checkpoints.take(id, "memory", "gvisor", write, origin);
    await checkpoints.holding(id, async () => {
      await checkpoints.holding(id, () => checkpoints.remove(id));
      await checkpoints.verify(id);
    });
    await assert.rejects(checkpoints.find(id), { name: "SNAPSHOT_DAMAGED" });
  });
});

void test("a checkpoint can be removed completely while it is being synced to disk; the rest of a killed removal is removed at the next start", async () => {
  await withCheckpoints(async (checkpoints, folder) => {
    for (let round = 0; round < 60; round += 1) {
      const id = checkpoints.newID();
      await checkpoints.take(id, "memory", "gvisor", write, origin);
      await setTimeout(round / 4); // a moment between the first fsync and the mark
      await checkpoints.remove(id);
      assert.deepEqual(readdirSync(folder), [], `round ${round}`);
    }
    const [kept, killed] = [checkpoints.newID(), checkpoints.newID()];
    for (const id of [kept, killed]) await checkpoints.take(id, "memory", "gvisor", write, origin);
    await checkpoints.close();
    renameSync(join(folder, killed), join(folder, `discarded-${killed}`));
    await using spawner = openSpawner();
    await (await openCheckpoints(folder, spawner, openLog("test", "fatal"))).close();
    assert.deepEqual(readdirSync(folder), [kept]);
  });
});

void test("only unreferenced checkpoints, including half-made ones, are listed as strays", async () => {
  await withCheckpoints(async (checkpoints, folder) => {
    const [kept, stray] = [checkpoints.newID(), checkpoints.newID()];
    for (const id of [kept, stray]) await checkpoints.take(id, "filesystem", "runc", write, origin);
    await writeFile(join(folder, "notes.txt"), "an operator's own");
    const strays = await checkpoints.strays(new Set([kept]));
    assert.deepEqual(strays, [stray]);
    for (const id of strays) await checkpoints.remove(id);
    assert.deepEqual(readdirSync(folder).sort(), [kept, "notes.txt"].sort());
    await checkpoints.verify(kept);
  });
});

void test("a file that a later checkpoint shares keeps its original checksum, so that damage since then is detected", async () => {
  await withCheckpoints(async (checkpoints, folder) => {
    const [first, second] = [checkpoints.newID(), checkpoints.newID()];
    const large = async ({ directory }: Checkpoint) => writeFile(join(directory, "pages.img"), Buffer.alloc(2 ** 21, 7));
    await checkpoints.take(first, "memory", "gvisor", large, origin);
    const path = join((await checkpoints.find(first)).directory, "pages.img");
    const share = async ({ directory }: Checkpoint) => link(path, join(directory, "pages-000000.img"));
    await checkpoints.take(second, "memory", "gvisor", share, origin);
    await checkpoints.remove(first);
    await checkpoints.verify(second);
    const third = checkpoints.newID();
    const shared = join((await checkpoints.find(second)).directory, "pages-000000.img");
    const times = join(folder, "times");
    await writeFile(times, "");
    execFileSync("touch", ["-r", shared, times]);
    writeFileSync(shared, Buffer.alloc(2 ** 21, 8));
    // This imitates a failing medium, which changes no timestamps.
    execFileSync("touch", ["-r", times, shared]);
    await checkpoints.take(third, "memory", "gvisor", async ({ directory }) => link(shared, join(directory, "pages-000000.img")), origin);
    for (const id of [second, third]) await assert.rejects(checkpoints.verify(id), { name: "SNAPSHOT_DAMAGED" });
  });
});

const sealed = async ({ directory }: Checkpoint) => {
  await write({ directory, kind: "memory" });
  await writeFile(join(directory, "sealed-000000.img"), Buffer.alloc(5_000_000, 9));
};

void test("a sealed file is not read, is counted by its used blocks, and is refused if it was written to, cut short or removed", async () => {
  const harms: [string, (file: string) => Promise<void>][] = [
    [
      "a changed byte",
      async (path) => {
        const file = await open(path, "r+");
        await file.write(Buffer.from([8]), 0, 1, 500_000);
        await file.close();
      },
    ],
    ["a short file", (path) => truncate(path, 4_999_999)],
    ["a missing file", (path) => unlink(path)],
  ];
  for (const [what, harm] of harms) {
    await withCheckpoints(async (checkpoints) => {
      const id = checkpoints.newID();
      const { sizeBytes } = await checkpoints.take(id, "memory", "gvisor", sealed, origin);
      assert.ok(sizeBytes >= 6_000_005 && sizeBytes < 6_100_000, `${sizeBytes}`);
      await checkpoints.verify(id);
      await harm(join((await checkpoints.find(id)).directory, "sealed-000000.img"));
      await assert.rejects(checkpoints.verify(id), { name: "SNAPSHOT_DAMAGED" }, what);
    });
  }
});

void test("a sealed file restored by an archive with whole seconds is accepted; with another second it is refused", async () => {
  await withCheckpoints(async (checkpoints) => {
    const id = checkpoints.newID();
    await checkpoints.take(id, "memory", "gvisor", sealed, origin);
    const file = join((await checkpoints.find(id)).directory, "sealed-000000.img");
    const second = Math.floor(statSync(file).mtimeMs / 1000);
    utimesSync(file, second, second);
    await checkpoints.verify(id);
    utimesSync(file, second + 1, second + 1);
    await assert.rejects(checkpoints.verify(id), { name: "SNAPSHOT_DAMAGED", message: /must keep times/ });
  });
});

void test("after a reboot a sealed file is accepted only if it is known to have reached the disk", async () => {
  for (const reached of [true, false]) {
    await withCheckpoints(async (checkpoints, folder) => {
      const id = checkpoints.newID();
      await checkpoints.take(id, "memory", "gvisor", sealed, origin);
      await checkpoints.close(); // this waits for the background sync
      const directory = join(folder, id);
      const text = readFileSync(join(directory, "manifest.json"), "utf8");
      writeFileSync(join(directory, "manifest.json"), text.replace(/"bootID":"[^"]+"/, '"bootID":"another"'));
      if (!reached) await unlink(join(directory, "on-disk"));
      const verified = checkpoints.verify(id);
      if (reached) await verified;
      else await assert.rejects(verified, { name: "SNAPSHOT_DAMAGED", message: /before its files were known to be on the disk/ });
    });
  }
});

void test("the next node syncs to disk what a killed one did not", async () => {
  await withCheckpoints(async (checkpoints, folder) => {
    const id = checkpoints.newID();
    await checkpoints.take(id, "memory", "gvisor", sealed, origin);
    await checkpoints.close();
    await unlink(join(folder, id, "on-disk"));
    await using spawner = openSpawner();
    await (await openCheckpoints(folder, spawner, openLog("test", "fatal"))).close();
    assert.ok(existsSync(join(folder, id, "on-disk")));
  });
});
