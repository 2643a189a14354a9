// The records: what was written is read back, by the next opener only after the first is gone.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { IDEMPOTENCY_KEPT_MS } from "../src/records/create-keys.ts";
import { ENDED_KEPT_MS, openRecords } from "../src/records/records.ts";
import type { Snapshot, SnapshotQuery } from "../src/records/snapshots.ts";
import { claimWith, handle, recordWith } from "./record-fixture.ts";

function temporary() {
  const directory = mkdtempSync(join(tmpdir(), "svc-records-"));
  return { path: join(directory, "sandboxes.db"), [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }) };
}

const aside = { addUnreadable: (each: { name: string }) => assert.fail(`${each.name} was set aside`) };
const record = recordWith({ state: "creating" });

void test("records, reasons of ended sandboxes and idempotency keys outlive the process that wrote them", () => {
  using place = temporary();
  const first = openRecords(place.path, { aside });
  first.put(record);
  first.putClaimed({ ...record, sandboxID: "i2" }, { key: "k", bodyHash: "h", answer: "{}" }, 1000);
  first.putEnding(record, { sandboxID: "i1", reason: "oom", endedAtWallMs: 5000 });
  first.remove("i1");
  first.close();
  const second = openRecords(place.path, { aside });
  assert.deepEqual(
    second.all().map((each) => each.sandboxID),
    ["i2"],
  );
  assert.equal(second.ended("i1")?.reason, "oom");
  assert.deepEqual(second.keys.created("k"), { key: "k", bodyHash: "h", answer: "{}" });
  second.prune(5000 + ENDED_KEPT_MS + 1);
  assert.equal(second.ended("i1"), undefined);
  second.prune(1000 + IDEMPOTENCY_KEPT_MS + 1);
  assert.equal(second.keys.created("k"), undefined);
  second.close();
});

void test("a home belongs to one node at a time, and the second is told so", () => {
  using place = temporary();
  const first = openRecords(place.path, { aside });
  assert.throws(() => openRecords(place.path, { aside }), /in use by another node/);
  first.close();
  openRecords(place.path, { aside }).close();
});

void test("a damaged file of records is refused by name, not replaced", () => {
  using place = temporary();
  writeFileSync(place.path, "this is no database".repeat(100));
  assert.throws(() => openRecords(place.path, { aside }), /sandboxes\.db cannot be opened/);
});

const snapshot: Snapshot = {
  snapshotID: "snap1",
  sandboxID: "i1",
  templateID: "base",
  captureID: "c1",
  kind: "memory",
  runtime: "gvisor",
  image: { rootfs: "/t", binds: [] },
  limits: record.limits,
  envd: "envd-0",
  envdVersion: "0.6.13",
  user: "user",
  workdir: "",
  env: {},
  sizeBytes: 1,
  createdAtWallMs: 1,
};

void test("a snapshot is found by id, by name:tag, and by name alone as its default tag; a name moves to the newest", () => {
  using place = temporary();
  const records = openRecords(place.path, { aside });
  const { snapshots } = records;
  snapshots.add(snapshot, "mine");
  snapshots.add({ ...snapshot, snapshotID: "snap2", sandboxID: "i2", createdAtWallMs: 2 }, "mine:v2");
  assert.equal(snapshots.find("mine")?.snapshotID, "snap1");
  assert.equal(snapshots.find("mine:default")?.snapshotID, "snap1");
  assert.equal(snapshots.find("mine:v2")?.snapshotID, "snap2");
  assert.deepEqual(snapshots.find("snap2")?.names, ["mine:v2"]);
  snapshots.add({ ...snapshot, snapshotID: "snap3", createdAtWallMs: 3 }, "mine");
  assert.equal(snapshots.find("mine")?.snapshotID, "snap3");
  assert.deepEqual(snapshots.find("snap1")?.names, []);
  const ids = (query: SnapshotQuery) => snapshots.list(query).map(({ snapshotID }) => snapshotID);
  assert.deepEqual(ids({}), ["snap3", "snap2", "snap1"]);
  assert.deepEqual(ids({ sandboxID: "i1" }), ["snap3", "snap1"]);
  assert.deepEqual(ids({ name: "mine" }), ["snap3", "snap2"]);
  assert.deepEqual(ids({ name: "mine:v2" }), ["snap2"]);
  snapshots.remove("snap3");
  assert.equal(snapshots.find("mine"), undefined);
  records.close();
});

void test("the records of an earlier version are read after an upgrade, a running sandbox with its rules", () => {
  using place = temporary();
  openRecords(place.path, { aside }).close();
  const db = new DatabaseSync(place.path);
  const { timeoutSeconds: _, onTimeout: __, pauseKind: ___, autoResume: ____, egress: _____, envVars: ______, user: _______, ...rest } = claimWith();
  const { image: ________, envd: _________, guestBootID: __________, ...old } = recordWith({ state: "creating" });
  const status = { state: "running", handle, claim: { ...rest, allowInternet: false } };
  db.prepare("INSERT INTO sandboxes VALUES (?, ?)").run("i1", JSON.stringify({ ...old, status }));
  db.exec("PRAGMA user_version = 1");
  db.close();
  const records = openRecords(place.path, { aside });
  const [upgraded] = records.all();
  assert.ok(upgraded?.status.state === "running");
  assert.deepEqual(upgraded.status.claim.egress, { allowInternet: false, allowOut: [], denyOut: [] });
  assert.equal(upgraded.status.claim.onTimeout, "kill");
  assert.equal(upgraded.envd, "");
  records.close();
});
