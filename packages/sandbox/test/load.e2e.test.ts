// The disk usage that a node reports to gateways.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { closeSync, mkdirSync, openSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { needs } from "@svc/harness/needs.ts";
import { openLoad } from "../src/cluster/load.ts";

const MIB = 2 ** 20;

void test(
  "the used bytes of a node's disk equal those that df shows, without the blocks reserved for root",
  needs("root", "mkfs.ext4", "mount", "umount"),
  () => {
    const folder = makeHome();
    const [image, home] = [join(folder, "image"), join(folder, "home")];
    mkdirSync(home);
    closeSync(openSync(image, "w"));
    truncateSync(image, 64 * MIB);
    // A quarter of the file system is reserved.
    execFileSync("mkfs.ext4", ["-q", "-F", "-m", "25", image]);
    execFileSync("mount", ["-o", "loop", image, home]);
    try {
      writeFileSync(join(home, "file"), Buffer.alloc(8 * MIB, 1), { flush: true });
      const usage = { totals: () => ({ memoryBytes: 0, memoryLimitBytes: 0, cpuLimit: 0 }) };
      const parts = {
        home,
        capacity: { onTheirWay: 0 },
        clockSkewMs: () => undefined,
        previews: { changes: 0 },
        isDraining: () => false,
        admission: { waiting: 0 },
        pool: { ready: () => new Map() },
        usage,
      };
      const { disk } = openLoad(parts)();
      const [, shown = ""] = execFileSync("df", ["-B1", "--output=size,used", home], { encoding: "utf8" }).trim().split("\n");
      assert.deepEqual([disk.totalBytes, disk.usedBytes], shown.trim().split(/\s+/).map(Number));
      assert.ok(disk.usedBytes < 16 * MIB, `${disk.usedBytes}`);
    } finally {
      execFileSync("umount", [home]);
      removeHome(folder);
    }
  },
);
