// Thousands of snapshots and templates: opened, listed and added to without a query for each.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { openRecords } from "../src/records/records.ts";
import type { Snapshot } from "../src/records/snapshots.ts";
import { openBuilds } from "../src/template/builds.ts";
import { openDatabase } from "../src/template/database.ts";
import { recordWith } from "./record-fixture.ts";

const quarantine = { addUnreadable: (each: { name: string }) => assert.fail(`${each.name} was quarantined`), find: () => undefined };
const SNAPSHOTS = 10_000;
const TEMPLATES = 5_000;
/** The work takes a second or two; with a query for each row the lists alone took hours. */
const BOUND_MS = 120_000;

const snapshot = (at: number): Snapshot => ({
  snapshotID: `snap${at}`,
  sandboxID: `i${at % 100}`,
  templateID: "base",
  checkpointID: `c${at}`,
  kind: "memory",
  runtime: "gvisor",
  image: { rootfs: "/t", binds: [] },
  limits: recordWith({ state: "creating" }).limits,
  envd: "envd-0",
  envdVersion: "0",
  user: "user",
  workdir: "",
  env: {},
  sizeBytes: 1,
  createdAtWallMs: at,
});

void test("10,000 named snapshots are opened, listed a thousand times and added to within the bound", { timeout: BOUND_MS }, () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-many-"));
  const path = join(folder, "sandboxes.db");
  openRecords(path, { quarantine }).close();
  const db = new DatabaseSync(path);
  db.exec("BEGIN");
  const insert = db.prepare("INSERT INTO snapshots VALUES (?, ?, ?, ?)");
  const name = db.prepare("INSERT INTO snapshot_names VALUES (?, ?)");
  for (let at = 0; at < SNAPSHOTS; at++) {
    const each = snapshot(at);
    insert.run(each.snapshotID, each.sandboxID, each.createdAtWallMs, JSON.stringify(each));
    name.run(`name${at}:default`, each.snapshotID);
  }
  db.exec("COMMIT");
  db.close();
  const records = openRecords(path, { quarantine });
  const { snapshots } = records;
  assert.equal(snapshots.size, SNAPSHOTS);
  for (let round = 0; round < 1_000; round++) {
    assert.equal(snapshots.list({}).length, SNAPSHOTS + round);
    assert.equal(snapshots.list({ name: `name${round}` })[0]?.snapshotID, `snap${round}`);
    snapshots.add({ ...snapshot(SNAPSHOTS + round), snapshotID: `new${round}` }, `new${round}`);
  }
  assert.equal(snapshots.list({})[0]?.snapshotID, "new999");
  assert.equal(snapshots.find("name7")?.snapshotID, "snap7");
  records.close();
  rmSync(folder, { recursive: true });
});

void test("5,000 templates are opened, resolved and listed with their builds within the bound", { timeout: BOUND_MS }, () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-many-"));
  const path = join(folder, "templates.db");
  const first = openDatabase(path);
  const made = openBuilds(first, Date.now, quarantine);
  first.transaction(() => {
    const asked = { cpuCount: undefined, memoryMB: undefined, diskSizeMB: undefined };
    const insert = (table: string, ...values: (string | number)[]) => first.run(`INSERT INTO ${table} VALUES (${values.map(() => "?").join(", ")})`, ...values);
    for (let at = 0; at < TEMPLATES; at++) {
      const template = { templateID: `t${at}`, name: `name${at}`, public: false, createdAtMs: at, updatedAtMs: at };
      insert("templates", template.templateID, template.name, JSON.stringify(template));
      for (const age of [1, 2]) {
        const build = {
          buildID: `b${at}-${age}`,
          templateID: template.templateID,
          status: "error",
          tags: ["default"],
          ...asked,
          createdAtMs: at + age,
          updatedAtMs: at,
        };
        insert("builds", build.buildID, build.templateID, build.status, build.createdAtMs, JSON.stringify(build));
      }
    }
  });
  assert.equal(made.templateCount, 0);
  first.close();
  const db = openDatabase(path);
  const builds = openBuilds(db, Date.now, quarantine);
  for (let round = 0; round < 100; round++) {
    const listed = builds.templates().map(({ templateID }) => builds.of(templateID));
    assert.equal(listed.length, TEMPLATES);
    assert.deepEqual(
      builds.of("t7").map(({ buildID }) => buildID),
      ["b7-2", "b7-1"],
    );
    assert.equal(builds.template(`name${round}`)?.templateID, `t${round}`);
  }
  db.close();
  rmSync(folder, { recursive: true });
});
