// The audit log has every line once and in order, through rotation, a full disk and a flood of refusals.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { appendFileSync, mkdtempSync, readFileSync, renameSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { needs } from "@svc/harness/needs.ts";
import { openLog } from "@svc/kit/log.ts";
import type { AuditEntry } from "@svc/kit/serve-audit.ts";
import { openAudit } from "@svc/sandbox/observe/audit.ts";

const log = openLog("test", "silent");

function entry(number: number, status = 204): AuditEntry {
  return {
    at: new Date(1_764_000_000_000 + number).toISOString(),
    operation: "deleteSandbox",
    method: "DELETE",
    route: "/sandboxes/{sandboxID}",
    target: { sandboxID: `i${number}` },
    status,
    client: "192.0.2.1",
    userAgent: "test",
    requestID: String(number),
    durationMs: 1,
  };
}

function lines(path: string): Record<string, unknown>[] {
  return readFileSync(path, "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

function directory() {
  const path = mkdtempSync(join(tmpdir(), "svc-audit-"));
  return { path, log: join(path, "audit.log"), [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

void test("lines are appended in order, to a file that only the node's user can read", async () => {
  using place = directory();
  for (let round = 0; round < 2; round++) {
    const audit = openAudit({ path: place.log, log });
    for (let number = 0; number < 1_500; number++) audit.entry(entry(round * 1_501 + number));
    audit.note({ what: "sandbox.auto_paused", sandboxID: "i1", reason: "timeout" });
    await audit.close();
  }
  const all = lines(place.log);
  assert.equal(all.length, 3_002);
  assert.deepEqual(
    all.filter(({ kind }) => kind === "request").map(({ requestID }) => requestID),
    [...Array(1_500).keys(), ...Array.from({ length: 1_500 }, (_, index) => index + 1_501)].map(String),
  );
  assert.deepEqual({ ...all[1_500], at: "" }, { at: "", kind: "node", what: "sandbox.auto_paused", sandboxID: "i1", reason: "timeout" });
  assert.equal(statSync(place.log).mode & 0o777, 0o600);
});

void test("a log that is rotated continues in a new file, with and without SIGHUP", async () => {
  using place = directory();
  const audit = openAudit({ path: place.log, log });
  audit.entry(entry(1));
  await audit.flush();
  renameSync(place.log, `${place.log}.1`);
  audit.entry(entry(2));
  await audit.flush();
  renameSync(place.log, `${place.log}.2`);
  if (process.stdin.isTTY !== true) process.kill(process.pid, "SIGHUP");
  audit.entry(entry(3));
  await audit.close();
  const numbers = [`${place.log}.1`, `${place.log}.2`, place.log].map((path) => lines(path).map(({ requestID }) => requestID));
  assert.deepEqual(numbers, [["1"], ["2"], ["3"]]);
});

void test("a line that a kill cut short does not damage the next one", async () => {
  using place = directory();
  appendFileSync(place.log, '{"at":"2026');
  const audit = openAudit({ path: place.log, log });
  audit.entry(entry(1));
  await audit.close();
  assert.deepEqual(readFileSync(place.log, "utf8").split("\n").slice(0, 1), ['{"at":"2026']);
  assert.equal((JSON.parse(readFileSync(place.log, "utf8").split("\n")[1] ?? "") as { requestID: string }).requestID, "1");
});

void test("a full disk loses and duplicates no line: lines wait, and one log message says that the file cannot be written", needs("root"), async () => {
  using place = directory();
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=256k", "tmpfs", place.path]);
  try {
    const said: string[] = [];
    const listening = { error: (_: object, text: string) => said.push(text), info: (_: object, text: string) => said.push(text) };
    const audit = openAudit({ path: place.log, log: listening as never });
    const total = 5_000;
    for (let number = 0; number < total; number++) audit.entry(entry(number));
    const end = performance.now() + 30_000;
    while (said.length === 0 && performance.now() < end) await sleep(20);
    assert.match(said[0] ?? "", /cannot be written/);
    assert.ok(statSync(place.log).size <= 256 * 1024);
    execFileSync("mount", ["-o", "remount,size=16m", place.path]);
    await audit.flush();
    await audit.close();
    // The full disk cut one line in half, which stays alone on its line; the complete line follows.
    const whole = readFileSync(place.log, "utf8")
      .split("\n")
      .filter((line) => line.startsWith("{") && line.endsWith("}"));
    assert.deepEqual(
      whole.map((line) => (JSON.parse(line) as { requestID: string }).requestID),
      [...Array(total).keys()].map(String),
    );
    assert.equal(said.filter((text) => text.includes("cannot be written")).length, 1);
    assert.equal(audit.lost, 0);
  } finally {
    execFileSync("umount", ["-l", place.path]);
  }
});

void test("clients without a key cannot fill the log: further refusals are counted", async () => {
  using place = directory();
  const now = Date.now();
  const audit = openAudit({ path: place.log, log, wallMs: () => now });
  for (let number = 0; number < 10_000; number++) audit.entry(entry(number, 401));
  audit.entry(entry(10_000));
  await audit.close();
  const all = lines(place.log);
  assert.equal(all.filter(({ status }) => status === 401).length, 100);
  assert.deepEqual(
    all.filter(({ kind }) => kind === "refusals").map(({ further }) => further),
    [9_900],
  );
  assert.equal(all.filter(({ requestID }) => requestID === "10000").length, 1);
});
