// The runtime suite on runc, as root.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { runtimeSuite } from "./runtime.suite.ts";
import { openFixture, remains } from "./runtime-fixture.ts";

runtimeSuite("runc", "runc", { limits: true, users: true, sudo: true }, needs("root", "envd", "base", "runc", "ip"));

void test("runc: a start that was cut off while runc's program was mounted is listed and can be destroyed", needs("root", "runc"), async () => {
  await using fixture = await openFixture("runc");
  const runtimeID = "halfmade0001";
  const record = join(fixture.home, "run/runc/state", runtimeID);
  mkdirSync(record, { recursive: true });
  writeFileSync(join(record, "runc.A1b2C3"), "");
  execFileSync("mount", ["--bind", process.execPath, join(record, "runc.A1b2C3")]);
  assert.deepEqual(await fixture.runtime.list(), [runtimeID]);
  await fixture.runtime.destroy({ runtimeID, directory: join(fixture.home, "sandboxes", runtimeID) });
  assert.deepEqual(remains(fixture.home, runtimeID), []);
  assert.deepEqual(await fixture.runtime.list(), []);
});
