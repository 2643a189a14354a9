// The doctor on this host, as root and as a plain user: its findings, its exit codes, and that it leaves nothing behind.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { needs } from "@svc/harness/needs.ts";
import { openSpawner } from "@svc/kit/spawn.ts";
import { runDoctor } from "@svc/sandbox/doctor/doctor.ts";
import type { Diagnosis } from "@svc/sandbox/doctor/report.ts";
import { renderDiagnosis } from "@svc/sandbox/doctor/report.ts";
import { isRoot } from "./runtime-fixture.ts";

const main = fileURLToPath(new URL("../src/doctor/main.ts", import.meta.url));
const options = needs("root", "envd", "base", "runsc", "runc", "bwrap", "setpriv");
const nobody = ["--reuid=64322", "--regid=64322", "--clear-groups"];

function doctor(prefix: readonly string[], flags: readonly string[], env: NodeJS.ProcessEnv) {
  const [program = "", ...args] = [...prefix, process.execPath, "--disable-warning=ExperimentalWarning", main, ...flags];
  return spawnSync(program, args, { encoding: "utf8", env, cwd: "/", timeout: 120_000 });
}

void test("the doctor proves each driver by a sandbox, and reports its abilities", options, async () => {
  await using spawner = openSpawner();
  const { SVC_RUNSC: runsc, SVC_ENVD: envd, SVC_TEMPLATES_DIR: templates } = process.env;
  // A doctor that runs at the same time in another process has its folders elsewhere.
  const folder = mkdtempSync(join(tmpdir(), "svc-test-"));
  const { TMPDIR } = process.env;
  process.env["TMPDIR"] = folder;
  const diagnosis = await runDoctor({ spawner, home: "/var/lib/svc", runsc, envd, templates }).finally(() => {
    if (TMPDIR === undefined) delete process.env["TMPDIR"];
    else process.env["TMPDIR"] = TMPDIR;
  });
  assert.equal(diagnosis.canRun, true);
  assert.deepEqual(
    diagnosis.drivers.map(({ runtime, isolation, pauseWithMemory }) => [runtime, isolation, pauseWithMemory.works]),
    [
      ["gvisor", "kernel in user space", true],
      ["runc", "namespaces", false],
      ["bubblewrap", "namespaces", false],
    ],
  );
  for (const { usable, idleMB, runtime } of diagnosis.drivers) assert.ok(usable.works && idleMB > 0 && idleMB < 40, `${runtime}: ${usable.says}, ${idleMB} MB`);
  for (const { works, follows, fix, name } of diagnosis.checks)
    assert.ok(works || (follows !== "" && fix !== ""), `${name} says what follows and how to fix it`);
  const text = renderDiagnosis(diagnosis, 100);
  for (const word of ["cgroups", "loop devices", "isolation: kernel in user space", "the node would use"]) assert.ok(text.includes(word), word);
  assert.deepEqual(readdirSync(folder), []);
  rmSync(folder, { recursive: true });
  assert.ok(!readFileSync("/proc/self/mountinfo", "utf8").includes(folder));
});

void test("for a plain user the doctor finds the unprivileged driver, and reports its limitations", options, () => {
  const { status, stdout, stderr } = doctor(["setpriv", ...nobody, "--"], ["-o", "json"], { ...process.env, HOME: "/tmp", SVC_HOME: "/tmp/svc-nobody" });
  assert.equal(status, 0, stderr);
  const diagnosis = JSON.parse(stdout) as Diagnosis;
  const working = diagnosis.drivers.filter(({ usable }) => usable.works);
  assert.deepEqual(
    working.map(({ runtime, isolation }) => [runtime, isolation]),
    [["bubblewrap", "unprivileged namespaces"]],
  );
  assert.equal(working[0]?.limits.works, false);
  assert.equal(diagnosis.checks.find(({ name }) => name === "root")?.works, false);
});

void test("the doctor exits with 1 where no sandbox can run, and with 2 on a flag it does not know", options, () => {
  assert.equal(isRoot, true);
  const { SVC_RUNSC: _, ...env } = process.env;
  const none = doctor(["/usr/bin/setpriv", ...nobody, "--"], ["--output", "table"], { ...env, PATH: "/nonexistent" });
  assert.equal(none.status, 1, none.stderr);
  assert.match(none.stdout, /No sandbox can run here/);
  assert.match(none.stdout, /fix: apt-get install bubblewrap/);
  assert.equal(doctor([], ["--outptu", "json"], env).status, 2);
});
