// The records: what was written is read back, by the next opener only after the first is gone.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ENDED_KEPT_MS, IDEMPOTENCY_KEPT_MS, openRecords } from "../src/node/records.ts";
import type { SandboxRecord } from "../src/node/state.ts";

function temporary() {
  const directory = mkdtempSync(join(tmpdir(), "svc-records-"));
  return { path: join(directory, "sandboxes.db"), [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }) };
}

const record: SandboxRecord = {
  sandboxID: "i1",
  bootID: "b",
  directory: "/d",
  templateID: "base",
  envdVersion: "0.6.13",
  limits: { cpuCount: 1, memoryMB: 64, diskSizeMB: 64, pids: 64 },
  status: { state: "creating" },
};

void test("records, reasons of ended sandboxes and idempotency keys outlive the process that wrote them", () => {
  using place = temporary();
  const first = openRecords(place.path);
  first.put(record);
  first.putClaimed({ ...record, sandboxID: "i2" }, { key: "k", bodyHash: "h", answer: "{}" }, 1000);
  first.putEnding(record, { sandboxID: "i1", reason: "oom", endedAtWallMs: 5000 });
  first.remove("i1");
  first.close();
  const second = openRecords(place.path);
  assert.deepEqual(
    second.all().map((each) => each.sandboxID),
    ["i2"],
  );
  assert.equal(second.ended("i1")?.reason, "oom");
  assert.deepEqual(second.idempotent("k"), { key: "k", bodyHash: "h", answer: "{}" });
  second.prune(5000 + ENDED_KEPT_MS + 1);
  assert.equal(second.ended("i1"), undefined);
  second.prune(1000 + IDEMPOTENCY_KEPT_MS + 1);
  assert.equal(second.idempotent("k"), undefined);
  second.close();
});

void test("a home belongs to one node at a time, and the second is told so", () => {
  using place = temporary();
  const first = openRecords(place.path);
  assert.throws(() => openRecords(place.path), /held by another node/);
  first.close();
  openRecords(place.path).close();
});

void test("a damaged file of records is refused by name, not replaced", () => {
  using place = temporary();
  writeFileSync(place.path, "this is no database".repeat(100));
  assert.throws(() => openRecords(place.path), /sandboxes\.db cannot be opened/);
});
