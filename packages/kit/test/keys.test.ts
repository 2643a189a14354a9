// Named keys: who they stand for, where they end, and what survives on disk.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Failure } from "@svc/contract/failures.ts";
import { openKeyFile } from "@svc/kit/keys/key-file.ts";
import { Keys } from "@svc/kit/keys/keys.ts";
import { openLog } from "@svc/kit/log.ts";

const HERE = "127.0.0.1";
const log = openLog("test", "silent");
const ci = { name: "ci", tenant: "acme", role: "member", expiresAtMs: undefined, sourceAddresses: undefined } as const;

function openHome() {
  const folder = mkdtempSync(join(tmpdir(), "svc-keys-"));
  const path = join(folder, "api-keys.db");
  let nowMs = Date.now();
  return {
    path,
    open: () => new Keys({ store: openKeyFile(path), log, nowMs: () => nowMs }),
    later: (ms: number) => void (nowMs += ms),
    now: () => nowMs,
    [Symbol.dispose]: () => rmSync(folder, { recursive: true }),
  };
}

const reasonOf = (work: () => unknown): unknown => {
  try {
    work();
  } catch (error) {
    assert.ok(error instanceof Failure && error.name === "UNAUTHENTICATED");
    return error.details["reason"];
  }
  return "accepted";
};

void test("both spellings of a named key stand for its tenant and role, and neither is in the file", async () => {
  using home = openHome();
  const keys = home.open();
  const { made, record } = await keys.create(ci);
  for (const spelling of [made.apiKey, made.key]) {
    assert.deepEqual(keys.authenticate(spelling, HERE), { kind: "tenant", tenant: "acme", role: "member", keyID: record.id, isRelayed: false });
    assert.equal(keys.knows(spelling), true);
  }
  await keys.close();
  const stored = readFileSync(home.path, "latin1");
  assert.equal(stored.includes(made.apiKey.slice(4)) || stored.includes(made.key.slice(4)), false);
});

void test("a key that was revoked stays revoked after a restart, and says so to its holder", async () => {
  using home = openHome();
  const keys = home.open();
  const { made, record } = await keys.create(ci);
  await keys.revoke(record);
  await keys.close();
  const again = home.open();
  assert.equal(
    reasonOf(() => again.authenticate(made.apiKey, HERE)),
    "revoked",
  );
  assert.equal(
    reasonOf(() => again.authenticate(`sdk_${"0".repeat(64)}`, HERE)),
    "unknown",
  );
  await again.close();
});

void test("an expired key is refused from its end on, and a stream under it ends", async () => {
  using home = openHome();
  const keys = home.open();
  const { made, record } = await keys.create({ ...ci, expiresAtMs: home.now() + 60_000 });
  const ended = Promise.withResolvers<void>();
  keys.whileValid(record.id, ended.resolve);
  assert.equal(
    reasonOf(() => keys.authenticate(made.apiKey, HERE)),
    "accepted",
  );
  home.later(60_000);
  assert.equal(
    reasonOf(() => keys.authenticate(made.apiKey, HERE)),
    "expired",
  );
  // The end by time is noticed by a timer that does not keep the process alive.
  const alive = setInterval(() => {}, 1_000);
  await ended.promise;
  clearInterval(alive);
  await keys.close();
});

void test("a stream under a key ends when the key is revoked", async () => {
  using home = openHome();
  const keys = home.open();
  const { record } = await keys.create(ci);
  let ends = 0;
  keys.whileValid(record.id, () => ends++);
  const stop = keys.whileValid(record.id, () => assert.fail("this stream was over before"));
  stop();
  await keys.revoke(record);
  assert.equal(ends, 1);
  await keys.close();
});

void test("a key is refused from other addresses than its own with the answer of an unknown key", async () => {
  using home = openHome();
  const keys = home.open();
  const { made } = await keys.create({ ...ci, sourceAddresses: ["10.1.0.0/16", "203.0.113.7", "2001:db8::/32"] });
  for (const address of ["10.1.2.3", "203.0.113.7", "2001:db8::1"])
    assert.equal(
      reasonOf(() => keys.authenticate(made.apiKey, address)),
      "accepted",
      address,
    );
  for (const address of ["10.2.0.1", "203.0.113.8", "2001:db9::1", "", "unknown"])
    assert.equal(
      reasonOf(() => keys.authenticate(made.apiKey, address)),
      "unknown",
      address,
    );
  await assert.rejects(keys.create({ ...ci, sourceAddresses: ["10.0.0.0/33"] }), { name: "INVALID_REQUEST" });
  await keys.close();
});

void test("a rotated key is valid beside its earlier secret for the overlap, and alone after it", async () => {
  using home = openHome();
  const keys = home.open();
  const first = await keys.create(ci);
  const second = await keys.rotate(first.record, 600_000);
  assert.equal(
    reasonOf(() => keys.authenticate(first.made.key, HERE)),
    "accepted",
  );
  assert.equal(
    reasonOf(() => keys.authenticate(second.made.apiKey, HERE)),
    "accepted",
  );
  home.later(600_000);
  assert.equal(
    reasonOf(() => keys.authenticate(first.made.key, HERE)),
    "rotated",
  );
  assert.equal(keys.knows(first.made.apiKey), true);
  const third = await keys.rotate(second.record, 0);
  assert.equal(
    reasonOf(() => keys.authenticate(second.made.apiKey, HERE)),
    "unknown",
  );
  assert.equal(
    reasonOf(() => keys.authenticate(third.made.apiKey, HERE)),
    "accepted",
  );
  await keys.close();
});

void test("the last use of a key is known to the hour, also after a restart", async () => {
  using home = openHome();
  const keys = home.open();
  const { made, record } = await keys.create(ci);
  assert.equal(keys.lastUsedMs(record.id), undefined);
  keys.authenticate(made.apiKey, HERE);
  const hour = home.now() - (home.now() % 3_600_000);
  assert.equal(keys.lastUsedMs(record.id), hour);
  await keys.close();
  const again = home.open();
  assert.equal(again.lastUsedMs(record.id), hour);
  await again.close();
});
