// Databases on a full disk: new data is refused, ends and deletions are recorded, and everything works again once there is space.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { boundedDiskNeeds, openBoundedDisk } from "@svc/harness/bounded-disk.ts";
import { needs } from "@svc/harness/needs.ts";
import { openStore } from "../src/database.ts";
import { openDiskReserve } from "../src/disk-reserve.ts";

const DISK_MB = 96;

function openRows(folder: string, nowMs?: () => number) {
  const reserve = openDiskReserve(join(folder, "reserve"), nowMs);
  const tables = "CREATE TABLE IF NOT EXISTS rows (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT";
  const store = openStore(join(folder, "rows.db"), { schema: { version: 1, tables }, reserve });
  const insert = store.db.prepare("INSERT INTO rows VALUES (?, ?)");
  const remove = store.db.prepare("DELETE FROM rows WHERE key = ?");
  return {
    store,
    put: (key: string, bytes = 2_000) => store.write(() => void insert.run(key, "x".repeat(bytes))),
    delete: (key: string) => store.settle(() => Number(remove.run(key).changes)),
    keys: () =>
      store.db
        .prepare("SELECT key FROM rows ORDER BY key")
        .all()
        .map((row) => row["key"]),
  };
}

/** Inserts rows until the disk is full; returns the keys that were acknowledged. */
function putUntilFull(rows: { put(key: string): void }): string[] {
  const kept: string[] = [];
  assert.throws(
    () => {
      for (;;) {
        const key = `new-${String(kept.length).padStart(6, "0")}`;
        rows.put(key);
        kept.push(key);
      }
    },
    { name: "DISK_FULL", message: /^the disk under .* is full/ },
  );
  return kept;
}

void test("a database that does not fit on a full disk is refused with advice", needs(...boundedDiskNeeds), () => {
  using disk = openBoundedDisk(DISK_MB);
  disk.fill();
  const file = join(disk.path, "new.db");
  assert.throws(() => openStore(file, { schema: { version: 1, tables: "CREATE TABLE IF NOT EXISTS rows (key TEXT)" } }), {
    name: "DISK_FULL",
    message: /^the disk under .* is full: (.*new.db cannot be opened; make room there and try again|nothing was changed)$/,
  });
});

void test("a full disk refuses new rows, accepts every delete, and accepts new rows again once there is space", needs(...boundedDiskNeeds), () => {
  using disk = openBoundedDisk(DISK_MB);
  let nowMs = 0;
  const rows = openRows(disk.path, () => nowMs);
  const old = Array.from({ length: 2_000 }, (_, at) => `old-${String(at).padStart(6, "0")}`);
  for (const key of old) rows.put(key, 500);
  disk.fill();
  const kept = putUntilFull(rows);
  disk.fill();
  for (const key of old) assert.equal(rows.delete(key), 1, key);
  assert.deepEqual(rows.keys(), kept);
  disk.free();
  nowMs += 1_000;
  rows.put("after");
  assert.deepEqual(rows.keys(), ["after", ...kept]);
  rows.store.close();
});

void test("a database that was closed on a full disk still opens and deletes there, even without any free space", needs(...boundedDiskNeeds), () => {
  using disk = openBoundedDisk(DISK_MB);
  const first = openRows(disk.path);
  for (let at = 0; at < 50; at++) first.put(`old-${at}`);
  for (let round = 0; round < 5; round++) {
    disk.fill();
    putUntilFull(openedFrom(first));
    assert.equal(first.delete(`old-${round}`), 1);
  }
  first.store.close();
  disk.fill();
  const second = openRows(disk.path);
  assert.equal(second.delete("old-10"), 1);
  assert.throws(() => second.put("new"), { name: "DISK_FULL" });
  disk.fill();
  assert.equal(second.delete("old-11"), 1);
  second.store.close();
});

/** Numbers the rounds, so that each uses its own keys. */
let rounds = 0;
function openedFrom(rows: { put(key: string): void }): { put(key: string): void } {
  const round = rounds++;
  return { put: (key) => rows.put(`${round}-${key}`) };
}

void test("steps that a full disk interrupts are rolled back together, and the caller learns the reason", needs(...boundedDiskNeeds), () => {
  using disk = openBoundedDisk(DISK_MB);
  const rows = openRows(disk.path);
  rows.put("first");
  disk.fill();
  const insert = rows.store.db.prepare("INSERT INTO rows VALUES (?, ?)");
  const many = () => {
    for (let at = 0; at < 20_000; at++) insert.run(`part-${at}`, "x".repeat(2_000));
  };
  assert.throws(() => rows.store.write(many), { name: "DISK_FULL" });
  assert.deepEqual(rows.keys(), ["first"]);
  rows.store.close();
});

const rowsOf = (version: number, migrations = {}) => ({ version, tables: "CREATE TABLE IF NOT EXISTS rows (key TEXT) STRICT", migrations });

function temporary(): { path: string } & Disposable {
  const folder = mkdtempSync(join(tmpdir(), "svc-database-"));
  return { path: join(folder, "rows.db"), [Symbol.dispose]: () => rmSync(folder, { recursive: true }) };
}

void test("a file of a newer version is refused by name and stays unchanged", () => {
  using place = temporary();
  openStore(place.path, { schema: rowsOf(7) }).close();
  const before = readFileSync(place.path);
  assert.throws(() => openStore(place.path, { schema: rowsOf(6) }), {
    name: "HOST_UNSUITABLE",
    message: /rows\.db was written by a newer version of svc .*schema is 7.*known here 6/,
  });
  assert.deepEqual(readFileSync(place.path), before);
  openStore(place.path, { schema: rowsOf(7) }).close();
});

void test("a file of an earlier version runs each migration once, in order; a failed one leaves the file unchanged", () => {
  using place = temporary();
  openStore(place.path, { schema: rowsOf(1) }).close();
  const put = (key: string) => (db: DatabaseSync) => void db.prepare("INSERT INTO rows VALUES (?)").run(key);
  const fails = () => {
    throw new Error("the third migration fails");
  };
  const keys = (schema: ReturnType<typeof rowsOf>) => {
    const store = openStore(place.path, { schema });
    const found = store.db.prepare("SELECT key FROM rows").all();
    store.close();
    return found.map((row) => row["key"]);
  };
  assert.throws(() => keys(rowsOf(3, { 2: put("second"), 3: fails })), /the third migration fails/);
  assert.deepEqual(keys(rowsOf(1)), []);
  assert.deepEqual(keys(rowsOf(3, { 2: put("second"), 3: put("third") })), ["second", "third"]);
  assert.deepEqual(keys(rowsOf(3, { 2: put("second"), 3: put("third") })), ["second", "third"]);
});
