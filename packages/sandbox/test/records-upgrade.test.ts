// What earlier versions of svc wrote is read after an upgrade.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { openRecords } from "../src/records/records.ts";
import { openDatabase } from "../src/template/database.ts";
import { claimWith, handle, recordWith } from "./record-fixture.ts";

function temporary() {
  const directory = mkdtempSync(join(tmpdir(), "svc-upgrade-"));
  return { path: join(directory, "file.db"), [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }) };
}

const quarantine = { addUnreadable: (each: { name: string }) => assert.fail(`${each.name} was quarantined`) };

void test("the records of an earlier version are read after an upgrade, a running sandbox with its rules", () => {
  using place = temporary();
  openRecords(place.path, { quarantine }).close();
  const db = new DatabaseSync(place.path);
  const { timeoutSeconds: _, onTimeout: __, pauseKind: ___, autoResume: ____, egress: _____, envVars: ______, user: _______, ...rest } = claimWith();
  const { image: ________, envd: _________, guestBootID: __________, ...old } = recordWith({ state: "creating" });
  const status = { state: "running", handle, claim: { ...rest, allowInternet: false } };
  db.prepare("INSERT INTO sandboxes VALUES (?, ?)").run("i1", JSON.stringify({ ...old, status }));
  db.exec("PRAGMA user_version = 1");
  db.close();
  const records = openRecords(place.path, { quarantine });
  const [upgraded] = records.all();
  assert.ok(upgraded?.status.state === "running");
  assert.deepEqual(upgraded.status.claim.egress, { allowInternet: false, allowOut: [], denyOut: [] });
  assert.equal(upgraded.status.claim.onTimeout, "kill");
  assert.equal(upgraded.envd, "");
  records.close();
});

void test("what version 2 kept of checkpoints is found: a paused sandbox, one of the pool, a snapshot; what cannot be read stays quarantined", () => {
  using place = temporary();
  openRecords(place.path, { quarantine }).close();
  const db = new DatabaseSync(place.path);
  const put = db.prepare("INSERT INTO sandboxes VALUES (?, ?)");
  const kept = { captureID: "c7", kind: "memory", runtime: "gvisor" };
  const status = { state: "paused", claim: claimWith({ metadata: { captureID: "theirs" } }), kept, pausedAtWallMs: 7 };
  put.run("i1", JSON.stringify({ ...recordWith({ state: "creating" }), status }));
  put.run("i2", JSON.stringify({ ...recordWith({ state: "creating" }, "i2"), captureID: "c8" }));
  put.run("i3", "not JSON");
  const snapshot = { snapshotID: "snap1", captureID: "c9", kind: "memory", runtime: "gvisor", image: { rootfs: "/t", binds: [] }, createdAtWallMs: 1 };
  db.prepare("INSERT INTO snapshots VALUES ('snap1', 'i1', 1, ?)").run(JSON.stringify(snapshot));
  db.exec("PRAGMA user_version = 2");
  db.close();
  const unread: string[] = [];
  const records = openRecords(place.path, { quarantine: { addUnreadable: ({ name }) => unread.push(name) } });
  const [one, two] = records.all();
  assert.ok(one?.status.state === "paused");
  assert.deepEqual(one.status.kept, { checkpointID: "c7", kind: "memory", runtime: "gvisor" });
  assert.deepEqual(one.status.claim.metadata, { captureID: "theirs" });
  assert.equal(two?.checkpointID, "c8");
  assert.equal(records.snapshots.find("snap1")?.checkpointID, "c9");
  assert.deepEqual(unread, ["i3"]);
  records.close();
});

void test("the memory of a template that version 1 built, or fetched, is found", () => {
  using place = temporary();
  openDatabase(place.path).close();
  const db = new DatabaseSync(place.path);
  const record = JSON.stringify({ buildID: "b1", result: { captureID: "c1", envd: "envd-1" } });
  db.prepare("INSERT INTO builds VALUES ('b1', 't1', 'ready', 1, ?)").run(record);
  db.prepare("INSERT INTO builds VALUES ('b2', 't1', 'waiting', 1, ?)").run(JSON.stringify({ buildID: "b2" }));
  db.prepare("INSERT INTO copies VALUES ('b1', ?)").run(record);
  db.exec("PRAGMA user_version = 1");
  db.close();
  const upgraded = openDatabase(place.path);
  const read = (table: string, id: string) => JSON.parse(upgraded.get(`SELECT record FROM ${table} WHERE build_id = ?`, id)?.["record"] as string) as unknown;
  const expected = { buildID: "b1", result: { checkpointID: "c1", envd: "envd-1" } };
  assert.deepEqual([read("builds", "b1"), read("builds", "b2"), read("copies", "b1")], [expected, { buildID: "b2" }, expected]);
  upgraded.close();
});
