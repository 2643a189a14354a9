// The records: written data is read back, and a second opener is refused until the first has closed.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import type { NameRecord } from "@svc/contract/cluster.ts";
import { IDEMPOTENCY_KEPT_MS } from "../src/records/create-keys.ts";
import { ENDED_KEPT_MS, openRecords } from "../src/records/records.ts";
import type { Snapshot, SnapshotQuery } from "../src/records/snapshots.ts";
import { recordWith } from "./record-fixture.ts";

function temporary() {
  const directory = mkdtempSync(join(tmpdir(), "svc-records-"));
  return { path: join(directory, "sandboxes.db"), [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }) };
}

const quarantine = { addUnreadable: (each: { name: string }) => assert.fail(`${each.name} was quarantined`) };
const record = recordWith({ state: "creating" });

void test("records, reasons of ended sandboxes and idempotency keys survive the process that wrote them", () => {
  using place = temporary();
  const first = openRecords(place.path, { quarantine });
  first.put(record);
  first.putClaimed({ ...record, sandboxID: "i2" }, { key: "k", bodyHash: "h", answer: "{}" }, 1000);
  first.putEnding(record, { sandboxID: "i1", reason: "oom", endedAtWallMs: 5000 });
  first.remove("i1");
  first.close();
  const second = openRecords(place.path, { quarantine });
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

void test("a home belongs to one node at a time, and the second gets an error", () => {
  using place = temporary();
  const first = openRecords(place.path, { quarantine });
  assert.throws(() => openRecords(place.path, { quarantine }), /in use by another node/);
  first.close();
  openRecords(place.path, { quarantine }).close();
});

void test("a damaged file of records is refused with its name, not replaced", () => {
  using place = temporary();
  writeFileSync(place.path, "this is no database".repeat(100));
  assert.throws(() => openRecords(place.path, { quarantine }), /sandboxes\.db cannot be opened/);
});

const snapshot: Snapshot = {
  snapshotID: "snap1",
  sandboxID: "i1",
  templateID: "base",
  checkpointID: "c1",
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
  const records = openRecords(place.path, { quarantine });
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

void test("a snapshot permanently loses its name to a newer one on another node, and a name assigned again here gets a later time than all known records", () => {
  using place = temporary();
  const first = openRecords(place.path, { quarantine });
  first.snapshots.add({ ...snapshot, createdAtWallMs: 5 }, "mine");
  const notified: NameRecord[][] = [];
  first.snapshots.names.watch((records) => notified.push([...records]));
  const elsewhere = { name: "mine:default", atMs: 9000, snapshotID: "snap9", nodeID: "node-b" };
  const { changed, unnamed } = first.snapshots.settle([elsewhere, { ...elsewhere, name: "other:v1" }]);
  assert.deepEqual([changed, unnamed.map(({ snapshotID, names }) => [snapshotID, names])], [2, [["snap1", []]]]);
  assert.deepEqual(first.snapshots.settle([{ ...elsewhere, atMs: 4, snapshotID: "snap1" }]), { changed: 0, unnamed: [] });
  first.close();
  const second = openRecords(place.path, { quarantine });
  const { snapshots } = second;
  assert.deepEqual([snapshots.find("mine"), snapshots.find("snap1")?.names, snapshots.names.get("mine:default")], [undefined, [], elsewhere]);
  snapshots.settle([{ ...elsewhere, atMs: 9001, snapshotID: "" }]);
  assert.equal(snapshots.find("mine"), undefined);
  // This machine's clock is behind that of the other node.
  snapshots.add({ ...snapshot, snapshotID: "snap2", createdAtWallMs: 6 }, "mine");
  assert.deepEqual(snapshots.names.get("mine:default"), { name: "mine:default", atMs: 9002, snapshotID: "snap2", nodeID: "" });
  snapshots.remove("snap2");
  second.close();
  const third = openRecords(place.path, { quarantine });
  assert.deepEqual(third.snapshots.names.get("mine:default"), { name: "mine:default", atMs: 9003, snapshotID: "", nodeID: "" });
  third.close();
  assert.deepEqual(
    notified.flat().map(({ name }) => name),
    ["mine:default", "other:v1"],
  );
});

void test("names assigned by an earlier version are known after an upgrade, and names lost before a downgrade stay lost", () => {
  using place = temporary();
  const first = openRecords(place.path, { quarantine });
  first.snapshots.add({ ...snapshot, createdAtWallMs: 5 }, "kept");
  first.snapshots.add({ ...snapshot, snapshotID: "snap2", createdAtWallMs: 6 }, "lost");
  first.snapshots.settle([{ name: "lost:default", atMs: 7, snapshotID: "", nodeID: "node-b" }]);
  first.close();
  const db = new DatabaseSync(place.path);
  db.exec("DELETE FROM snapshot_name_records WHERE name = 'kept:default'; INSERT INTO snapshot_names VALUES ('lost:default', 'snap2')");
  db.close();
  const { snapshots, close } = openRecords(place.path, { quarantine });
  assert.deepEqual([snapshots.find("kept")?.snapshotID, snapshots.names.get("kept:default")?.atMs], ["snap1", 5]);
  assert.deepEqual([snapshots.find("lost"), snapshots.find("snap2")?.names], [undefined, []]);
  close();
});
