// The template's files on which a checkpoint depends: changes are detected, while untouched and identically remade files are accepted.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { appendFileSync, chmodSync, mkdirSync, mkdtempSync, renameSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { openSpawner } from "@svc/kit/spawn.ts";
import { openGrounds } from "../src/records/ground.ts";

void test("changed size, content, mode, name or number of a template's files is detected; unchanged files pass", needs("xxh128sum", "find"), async () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-ground-"));
  const rootfs = join(folder, "rootfs");
  mkdirSync(join(rootfs, "etc"), { recursive: true });
  const motd = join(rootfs, "etc/motd");
  writeFileSync(motd, "hello");
  writeFileSync(join(rootfs, "etc/with\nnewline"), "x");
  const then = new Date("2026-01-01");
  utimesSync(motd, then, then);
  await using spawner = openSpawner();
  let nowMs = 0;
  const grounds = openGrounds(spawner, () => (nowMs += 10_000));
  const ground = await grounds.of(rootfs);
  await grounds.check(ground);
  const refused = (what: string) =>
    assert.rejects(grounds.check(ground), { name: "SNAPSHOT_DAMAGED", message: /template's files at .*rootfs have changed/ }, what);
  appendFileSync(motd, "!");
  await refused("size");
  writeFileSync(motd, "hallo");
  await refused("content of the same size");
  writeFileSync(motd, "hello");
  utimesSync(motd, then, then);
  await grounds.check(ground);
  chmodSync(motd, 0o600);
  await refused("mode");
  chmodSync(motd, 0o644);
  writeFileSync(join(rootfs, "etc/new"), "");
  await refused("a new file");
  rmSync(join(rootfs, "etc/new"));
  await grounds.check(ground);
  renameSync(motd, `${motd}2`);
  await refused("name");
  renameSync(`${motd}2`, motd);
  // Set-up makes the same files again, with other times.
  execFileSync("cp", ["-r", "--no-preserve=timestamps", rootfs, `${rootfs}.new`]);
  rmSync(rootfs, { recursive: true });
  renameSync(`${rootfs}.new`, rootfs);
  await grounds.check(ground);
  writeFileSync(motd, "longer than before");
  await refused("remade with other files");
  rmSync(folder, { recursive: true });
  nowMs = 0;
});
