// Files of versions before 0.1.0 are refused with a message, and stay unchanged.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { openRecords } from "../src/records/records.ts";
import { openDatabase } from "../src/template/database.ts";

function temporary() {
  const directory = mkdtempSync(join(tmpdir(), "svc-upgrade-"));
  return { path: join(directory, "file.db"), [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }) };
}

const quarantine = { addUnreadable: (each: { name: string }) => assert.fail(`${each.name} was quarantined`) };

void test("the records and templates of a version before 0.1.0 are refused with a message, and are unchanged", () => {
  for (const open of [(path: string) => openRecords(path, { quarantine }), (path: string) => openDatabase(path)]) {
    using place = temporary();
    open(place.path).close();
    const db = new DatabaseSync(place.path);
    db.exec("PRAGMA user_version = 2");
    db.close();
    const before = readFileSync(place.path);
    assert.throws(() => open(place.path), { name: "HOST_UNSUITABLE", message: /before 0\.1\.0 \(its schema is 2, .* use another --home, or that version/ });
    assert.deepEqual(readFileSync(place.path), before);
  }
});
