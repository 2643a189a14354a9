// Captures on disk: whole or not there, checked byte for byte, collected when nobody needs them.
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { open, truncate, unlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { openLog } from "@svc/kit/log.ts";
import { openSpawner } from "@svc/kit/spawn.ts";
import { type Captures, openCaptures } from "../src/node/captures.ts";
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

const write = async ({ directory }: Capture) => {
  await writeFile(join(directory, "pages.img"), Buffer.alloc(1_000_000, 7));
  await writeFile(join(directory, "state.img"), "state");
};

void test("a capture is found and verified with the files that were written", async () => {
  await withCaptures(async (captures) => {
    const id = captures.newID();
    const taken = await captures.take(id, "memory", "gvisor", write);
    assert.deepEqual(taken, { captureID: id, kind: "memory", sizeBytes: 1_000_005 });
    const found = await captures.find(id);
    assert.deepEqual(readdirSync(found.directory).sort(), ["pages.img", "state.img"]);
    await captures.verify(id);
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
      await captures.take(id, "memory", "gvisor", write);
      await harm((await captures.find(id)).directory);
      await assert.rejects(captures.verify(id), { name: "SNAPSHOT_DAMAGED" }, what);
    });
  }
});

void test("a capture that fails leaves nothing, and keeps its own failure", async () => {
  await withCaptures(async (captures, folder) => {
    const full = Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });
    await assert.rejects(
      captures.take(captures.newID(), "memory", "gvisor", () => Promise.reject(full)),
      { name: "DISK_FULL" },
    );
    await assert.rejects(
      captures.take(captures.newID(), "memory", "gvisor", () => Promise.reject(new Error("runsc said no"))),
      { name: "CAPTURE_FAILED", message: /runsc said no/ },
    );
    assert.deepEqual(readdirSync(folder), []);
  });
});

void test("a capture that is removed while something starts from it goes when the last of them is done", async () => {
  await withCaptures(async (captures) => {
    const id = captures.newID();
    await captures.take(id, "memory", "gvisor", write);
    await captures.holding(id, async () => {
      await captures.holding(id, () => captures.remove(id));
      await captures.verify(id);
    });
    await assert.rejects(captures.find(id), { name: "SNAPSHOT_DAMAGED" });
  });
});

void test("a sweep removes what nobody refers to, half-made ones too, and nothing else", async () => {
  await withCaptures(async (captures, folder) => {
    const [kept, stray] = [captures.newID(), captures.newID()];
    for (const id of [kept, stray]) await captures.take(id, "filesystem", "runc", write);
    await writeFile(join(folder, "notes.txt"), "an operator's own");
    assert.equal(await captures.sweep(new Set([kept])), 1);
    assert.deepEqual(readdirSync(folder).sort(), [kept, "notes.txt"].sort());
    await captures.verify(kept);
  });
});
