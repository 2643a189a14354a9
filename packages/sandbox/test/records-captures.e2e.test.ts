// Captures on disk: whole or not there, checked byte for byte, collected when nobody needs them.
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
import { type Captures, openCaptures } from "../src/records/captures.ts";
import type { Capture } from "../src/runtime/runtime.ts";

async function withCaptures(work: (captures: Captures, folder: string) => Promise<void>): Promise<void> {
  await using spawner = openSpawner();
  const folder = mkdtempSync(join(tmpdir(), "svc-captures-"));
  const captures = await openCaptures(folder, spawner, openLog("test", "fatal"));
  try {
    await work(captures, folder);
  } finally {
    await captures.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

const origin = { templateID: "base", envd: "envd-0", envdVersion: "0.6.13", initKey: "key" };

const write = async ({ directory }: Capture) => {
  await writeFile(join(directory, "pages.img"), Buffer.alloc(1_000_000, 7));
  await writeFile(join(directory, "state.img"), "state");
};

void test("a capture is found and verified with the files that were written", async () => {
  await withCaptures(async (captures) => {
    const id = captures.newID();
    const taken = await captures.take(id, "memory", "gvisor", write, origin);
    assert.deepEqual(taken, { captureID: id, kind: "memory", sizeBytes: 1_000_005 });
    const found = await captures.find(id);
    assert.equal(found.initKey, "key");
    assert.deepEqual(readdirSync(found.directory).sort(), ["pages.img", "state.img"]);
    await captures.verify(id);
  });
});

void test("a fork's checkpoint, which nobody keeps, never goes to disk; one that is kept does soon after it was acknowledged", async () => {
  await withCaptures(async (captures) => {
    const isOnDisk = async (id: string) => existsSync(join((await captures.find(id)).directory, "../on-disk"));
    const [kept, passing] = [captures.newID(), captures.newID()];
    await captures.take(passing, "memory", "gvisor", write, { ...origin, isKept: false });
    await captures.take(kept, "memory", "gvisor", write, origin);
    await captures.verify(passing);
    await captures.close();
    assert.deepEqual([await isOnDisk(kept), await isOnDisk(passing)], [true, false]);
  });
});

void test("one changed byte, a short file and a missing file are each called damage", async () => {
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
    await withCaptures(async (captures) => {
      const id = captures.newID();
      await captures.take(id, "memory", "gvisor", write, origin);
      await harm((await captures.find(id)).directory);
      await assert.rejects(captures.verify(id), { name: "SNAPSHOT_DAMAGED" }, what);
    });
  }
});

void test("a capture that fails leaves nothing, and keeps its own failure", async () => {
  await withCaptures(async (captures, folder) => {
    const full = Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });
    await assert.rejects(
      captures.take(captures.newID(), "memory", "gvisor", () => Promise.reject(full), origin),
      { name: "DISK_FULL" },
    );
    await assert.rejects(
      captures.take(captures.newID(), "memory", "gvisor", () => Promise.reject(new Error("runsc said no")), origin),
      { name: "CAPTURE_FAILED", message: /runsc said no/ },
    );
    assert.deepEqual(readdirSync(folder), []);
  });
});

void test("a capture that is removed while something starts from it goes when the last of them is done", async () => {
  await withCaptures(async (captures) => {
    const id = captures.newID();
    await captures.take(id, "memory", "gvisor", write, origin);
    await captures.holding(id, async () => {
      await captures.holding(id, () => captures.remove(id));
      await captures.verify(id);
    });
    await assert.rejects(captures.find(id), { name: "SNAPSHOT_DAMAGED" });
  });
});

void test("a capture goes whole while it is still being brought to the disk; what a kill left of it goes at the next start", async () => {
  await withCaptures(async (captures, folder) => {
    for (let round = 0; round < 60; round += 1) {
      const id = captures.newID();
      await captures.take(id, "memory", "gvisor", write, origin);
      await setTimeout(round / 4); // somewhere between the first fsync and the mark
      await captures.remove(id);
      assert.deepEqual(readdirSync(folder), [], `round ${round}`);
    }
    const [kept, killed] = [captures.newID(), captures.newID()];
    for (const id of [kept, killed]) await captures.take(id, "memory", "gvisor", write, origin);
    await captures.close();
    renameSync(join(folder, killed), join(folder, `discarded-${killed}`));
    await using spawner = openSpawner();
    await (await openCaptures(folder, spawner, openLog("test", "fatal"))).close();
    assert.deepEqual(readdirSync(folder), [kept]);
  });
});

void test("what nobody refers to, half-made ones too, is found as a stray, and nothing else", async () => {
  await withCaptures(async (captures, folder) => {
    const [kept, stray] = [captures.newID(), captures.newID()];
    for (const id of [kept, stray]) await captures.take(id, "filesystem", "runc", write, origin);
    await writeFile(join(folder, "notes.txt"), "an operator's own");
    const strays = await captures.strays(new Set([kept]));
    assert.deepEqual(strays, [stray]);
    for (const id of strays) await captures.remove(id);
    assert.deepEqual(readdirSync(folder).sort(), [kept, "notes.txt"].sort());
    await captures.verify(kept);
  });
});

void test("a file that a later capture shares keeps the checksum that it was written with: damage since then is not taken for it", async () => {
  await withCaptures(async (captures, folder) => {
    const [first, second] = [captures.newID(), captures.newID()];
    const large = async ({ directory }: Capture) => writeFile(join(directory, "pages.img"), Buffer.alloc(2 ** 21, 7));
    await captures.take(first, "memory", "gvisor", large, origin);
    const path = join((await captures.find(first)).directory, "pages.img");
    const share = async ({ directory }: Capture) => link(path, join(directory, "pages-000000.img"));
    await captures.take(second, "memory", "gvisor", share, origin);
    await captures.remove(first);
    await captures.verify(second);
    const third = captures.newID();
    const shared = join((await captures.find(second)).directory, "pages-000000.img");
    const times = join(folder, "times");
    await writeFile(times, "");
    execFileSync("touch", ["-r", shared, times]);
    writeFileSync(shared, Buffer.alloc(2 ** 21, 8));
    // As a medium that forgets, which changes no time.
    execFileSync("touch", ["-r", times, shared]);
    await captures.take(third, "memory", "gvisor", async ({ directory }) => link(shared, join(directory, "pages-000000.img")), origin);
    for (const id of [second, third]) await assert.rejects(captures.verify(id), { name: "SNAPSHOT_DAMAGED" });
  });
});

const sealed = async ({ directory }: Capture) => {
  await write({ directory, kind: "memory" });
  await writeFile(join(directory, "sealed-000000.img"), Buffer.alloc(5_000_000, 9));
};

void test("a sealed file is taken as it is, counted by what it holds, and refused when it was written to, cut short or taken away", async () => {
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
    await withCaptures(async (captures) => {
      const id = captures.newID();
      const { sizeBytes } = await captures.take(id, "memory", "gvisor", sealed, origin);
      assert.ok(sizeBytes >= 6_000_005 && sizeBytes < 6_100_000, `${sizeBytes}`);
      await captures.verify(id);
      await harm(join((await captures.find(id)).directory, "sealed-000000.img"));
      await assert.rejects(captures.verify(id), { name: "SNAPSHOT_DAMAGED" }, what);
    });
  }
});

void test("an archive that keeps whole seconds alone brings a sealed file back; another second is another file", async () => {
  await withCaptures(async (captures) => {
    const id = captures.newID();
    await captures.take(id, "memory", "gvisor", sealed, origin);
    const file = join((await captures.find(id)).directory, "sealed-000000.img");
    const second = Math.floor(statSync(file).mtimeMs / 1000);
    utimesSync(file, second, second);
    await captures.verify(id);
    utimesSync(file, second + 1, second + 1);
    await assert.rejects(captures.verify(id), { name: "SNAPSHOT_DAMAGED", message: /must keep times/ });
  });
});

void test("after the machine went down a sealed file counts only when it is known to have reached the disk", async () => {
  for (const reached of [true, false]) {
    await withCaptures(async (captures, folder) => {
      const id = captures.newID();
      await captures.take(id, "memory", "gvisor", sealed, origin);
      await captures.close(); // what goes to disk in the background is there
      const place = join(folder, id);
      const text = readFileSync(join(place, "manifest.json"), "utf8");
      writeFileSync(join(place, "manifest.json"), text.replace(/"bootID":"[^"]+"/, '"bootID":"another"'));
      if (!reached) await unlink(join(place, "on-disk"));
      const verified = captures.verify(id);
      if (reached) await verified;
      else await assert.rejects(verified, { name: "SNAPSHOT_DAMAGED", message: /before its files were known to be on the disk/ });
    });
  }
});

void test("what a killed node did not bring to the disk the next one does", async () => {
  await withCaptures(async (captures, folder) => {
    const id = captures.newID();
    await captures.take(id, "memory", "gvisor", sealed, origin);
    await captures.close();
    await unlink(join(folder, id, "on-disk"));
    await using spawner = openSpawner();
    await (await openCaptures(folder, spawner, openLog("test", "fatal"))).close();
    assert.ok(existsSync(join(folder, id, "on-disk")));
  });
});
