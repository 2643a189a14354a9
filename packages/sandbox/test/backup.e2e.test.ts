// Backups that are killed, run out of disk or get damaged: a backup is whole or none, a home is restored or does not start.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { runBackup } from "@svc/harness/backup.ts";
import { boundedDiskNeeds, openBoundedDisk } from "@svc/harness/bounded-disk.ts";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { contentOf, MIB, makeBackedUpHome } from "./backup-fixture.ts";

const NODE = fileURLToPath(new URL("../src/node/main.ts", import.meta.url));
const PIECE = 16 * MIB;

void describe("a backup", needs("root", "tar", "xxh128sum"), () => {
  let parent = "";
  let home = "";
  let checkpointIDs: readonly string[] = [];
  const at = (name: string) => join(parent, name);

  before(async () => {
    parent = mkdtempSync(join(tmpdir(), "svc-backup-test-"));
    home = at("home");
    ({ checkpointIDs } = await makeBackedUpHome(home, 24));
  });
  after(() => rmSync(parent, { recursive: true, force: true }));

  void test("has every file of a stopped node's home, with times to the nanosecond and holes, and no folder that a start makes", async () => {
    const before = contentOf(home);
    assert.equal((await runBackup(["create", at("whole"), `--home=${home}`])).code, 0);
    const { code, stderr } = await runBackup(["restore", at("whole"), `--home=${at("back")}`]);
    assert.equal(code, 0, stderr);
    const restored = contentOf(at("back"));
    // SQLite's log has become part of its file, and records name the new home.
    const comparable = (files: Record<string, string>) => Object.fromEntries(Object.entries(files).filter(([name]) => !/sandboxes\.db|on-disk/.test(name)));
    assert.deepEqual(comparable(restored), comparable(before));
    assert.ok(existsSync(at("back/sandboxes.db")));
    assert.deepEqual(
      ["run", "logs", "backup", "restore-unfinished.json"].filter((name) => existsSync(join(at("back"), name))),
      [],
    );
    const sealed = statSync(join(at("back"), "snapshots", checkpointIDs[0] ?? "", "files/sealed-000000.img"));
    assert.deepEqual([sealed.size, sealed.blocks * 512 < MIB], [1024 * MIB, true], "a hole stays a hole");
    const sizeBytes = readdirSync(at("whole/home")).reduce((sum, name) => sum + statSync(join(at("whole/home"), name)).size, 0);
    assert.ok(sizeBytes < 100 * MIB, "holes take no space in the backup");
  });

  void test("with one damaged byte, or a file less, is refused by verify and by restore, which name what is lost", async () => {
    assert.equal((await runBackup(["create", at("hurt"), `--home=${home}`])).code, 0);
    const pieces = readdirSync(at("hurt/home")).sort();
    assert.ok(pieces.length >= 3);
    const path = join(at("hurt/home"), pieces[1] ?? "");
    const whole = readFileSync(path);
    assert.equal(whole.length, PIECE);
    const hurt = Buffer.from(whole);
    hurt[5_000_000] = (hurt[5_000_000] ?? 0) ^ 1;
    writeFileSync(path, hurt);
    const named =
      /file home\/000001 of the backup is damaged: its digest is [0-9a-f]{64}, expected [0-9a-f]{64}; it holds snapshots\/c[0-9a-f]{24}\/files\/pages\.img/;
    const verified = await runBackup(["verify", at("hurt")]);
    assert.equal(verified.code, 1);
    assert.match(verified.stderr, named);
    const refused = await runBackup(["restore", at("hurt"), `--home=${at("never")}`]);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, named);
    rmSync(path);
    assert.match((await runBackup(["verify", at("hurt")])).stderr, /file home\/000001 of the backup is missing; it holds snapshots/);
    writeFileSync(path, whole);
    assert.equal((await runBackup(["verify", at("hurt")])).code, 0);

    const manifest = join(at("hurt"), "manifest");
    writeFileSync(manifest, readFileSync(manifest, "utf8").replace("node-backed-up", "node-backed-uq"));
    assert.match((await runBackup(["verify", at("hurt")])).stderr, /the manifest in file:.*hurt is damaged: its digest/);
    // The home that could not be restored starts no node, and says what to do.
    const complaint = complaintOf(at("never"));
    assert.match(complaint, /was not restored completely: run `svc backup restore file:.*hurt --home .*never` again/);
  });

  void test("that is killed at any moment of create leaves no backup, and the same command makes it then", async () => {
    let killed = 0;
    for (let round = 0; round < 4; round++) {
      const target = at(`killed-${round}`);
      const folder = join(target, "home");
      // Rounds end at different moments: during the copy of records, or after a number of pieces.
      const isThere = () => (round === 0 ? existsSync(join(home, "backup")) : existsSync(folder) && readdirSync(folder).length >= round);
      let kill: () => void = () => {};
      const running = runBackup(["create", target, `--home=${home}`], (end) => {
        kill = end;
      });
      await Promise.race([until("the moment to kill", () => isThere() || undefined, 1), running]);
      kill();
      if ((await running).code !== null) continue;
      killed++;
      assert.match((await runBackup(["restore", target, `--home=${at("none")}`])).stderr, /there is no backup in file:/);
      assert.equal(existsSync(at("none")), false, "nothing was begun");
      const { code, stderr } = await runBackup(["create", target, `--home=${home}`]);
      assert.equal(code, 0, stderr);
      assert.equal((await runBackup(["verify", target])).code, 0);
      assert.deepEqual(readdirSync(join(home, "backup")), [], "what the killed one staged is gone");
      rmSync(target, { recursive: true });
    }
    assert.ok(killed >= 2, `${killed} of 4 were killed`);
  });

  void test("that is killed at any moment of restore leaves a home that starts over, and never half of one", async () => {
    assert.equal((await runBackup(["create", at("source"), `--home=${home}`])).code, 0);
    const expected = Object.keys(contentOf(home)).sort();
    let killed = 0;
    for (let round = 0; round < 3; round++) {
      const into = at(`into-${round}`);
      const parts = ["restore-unfinished.json", "node-id", "snapshots"];
      let kill: () => void = () => {};
      const running = runBackup(["restore", at("source"), `--home=${into}`], (end) => {
        kill = end;
      });
      await Promise.race([until("the moment to kill", () => existsSync(join(into, parts[round] ?? "")) || undefined, 1), running]);
      kill();
      if ((await running).code !== null) continue;
      killed++;
      assert.match(complaintOf(into), /was not restored completely/);
      assert.match((await runBackup(["create", at("of-half"), `--home=${into}`])).stderr, /was not restored completely|is not the home of a node/);
      const { code, stderr } = await runBackup(["restore", at("source"), `--home=${into}`]);
      assert.equal(code, 0, stderr);
      const found = Object.keys(contentOf(into)).filter((name) => !name.endsWith("-wal"));
      assert.deepEqual(
        found.sort(),
        expected.filter((name) => !name.endsWith("-wal")),
      );
    }
    assert.ok(killed >= 2, `${killed} of 3 were killed`);
  });

  void test("on a full disk is refused with what to do, leaves nothing, and succeeds once there is room", needs(...boundedDiskNeeds), async () => {
    using disk = openBoundedDisk(200);
    const target = join(disk.path, "target");
    mkdirSync(target);
    disk.fill(40 * MIB);
    const { code, stderr } = await runBackup(["create", target, `--home=${home}`]);
    assert.equal(code, 1);
    assert.match(stderr, /the disk.* is full: make room there and try again/);
    assert.equal(readdirSync(target).includes("manifest"), false);
    assert.deepEqual(existsSync(join(target, "home")) ? readdirSync(join(target, "home")) : [], []);
    disk.free();
    assert.equal((await runBackup(["create", target, `--home=${home}`])).code, 0);

    using small = openBoundedDisk(200);
    small.fill(30 * MIB);
    const into = join(small.path, "home");
    const refused = await runBackup(["restore", target, `--home=${into}`]);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /the disk.* is full: make room there and try again/);
    assert.match(complaintOf(into), /was not restored completely/);
    small.free();
    assert.equal((await runBackup(["restore", target, `--home=${into}`])).code, 0);
  });

  void test("of a home that is not one, or into one that is not empty, is refused and changes nothing", async () => {
    assert.match(
      (await runBackup(["create", at("x"), `--home=${at("whole")}`])).stderr,
      /is not the home of a node or of a store's master: it has neither sandboxes\.db/,
    );
    assert.match((await runBackup(["create", join(home, "own"), `--home=${home}`])).stderr, /is below the home .*: give a directory elsewhere/);
    assert.equal((await runBackup(["create", at("y"), `--home=${home}`])).code, 0);
    const before = contentOf(home);
    assert.match((await runBackup(["restore", at("y"), `--home=${home}`])).stderr, /is not empty: it has .*and was not changed; give another --home/);
    assert.deepEqual(contentOf(home), before);
    assert.equal((await runBackup(["restore"])).code, 2);
    assert.match((await runBackup(["make", at("y")])).stderr, /expected create, verify or restore and a TARGET, got "make/);
  });
});

/** Returns what a node that refuses to start on a home prints. */
function complaintOf(home: string): string {
  const { status, stderr } = spawnSync(process.execPath, [NODE, `--home=${home}`, "--listen=127.0.0.1:0"], { encoding: "utf8" });
  assert.equal(status, 1, stderr);
  return stderr;
}
