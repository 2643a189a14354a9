// The simulated power cut is realistic: unsynced data is gone, and synced data is present.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createSnapshot, listSnapshots } from "@svc/contract/lifecycle.ts";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { boundedDiskNeeds, openBoundedDisk } from "../src/bounded-disk.ts";
import { freeze } from "../src/freeze.ts";
import { needs } from "../src/needs.ts";
import { destroyAll, startNode } from "../src/node.ts";

void test("a power cut loses a file that was only written, and keeps one that was synced with its folder", needs(...boundedDiskNeeds), () => {
  using disk = openBoundedDisk(16);
  const pathOf = (name: string) => join(disk.path, name);
  writeFileSync(pathOf("synced"), "synced");
  for (const path of [pathOf("synced"), disk.path]) {
    const file = openSync(path, "r");
    fsyncSync(file);
    closeSync(file);
  }
  writeFileSync(pathOf("written"), "written");
  disk.powerCut().use();
  assert.equal(readFileSync(pathOf("synced"), "utf8"), "synced");
  assert.equal(existsSync(pathOf("written")), false);
});

void test(
  "without durability disk the same cut takes what a node acknowledged: the test of durability can fail",
  needs("runsc", "envd", "base", ...boundedDiskNeeds),
  async () => {
    using disk = openBoundedDisk(512);
    await using node = await startNode({ home: disk.path, runtime: "gvisor", flags: ["--node.durability=process"] });
    const { sandboxID } = await node.call(createSandbox, { templateID: "base", timeout: 3600 });
    // Earlier data is on the disk; later writes are acknowledged but not synced.
    execFileSync("sync", ["-f", disk.path]);
    const { snapshotID } = await node.call(createSnapshot, { sandboxID });
    await freeze(node.pid);
    const cut = disk.powerCut();
    await node.kill("SIGKILL");
    await destroyAll(disk.path);
    cut.use();
    await node.start();
    assert.ok(!(await node.call(listSnapshots, {})).some((each) => each.snapshotID === snapshotID));
  },
);
