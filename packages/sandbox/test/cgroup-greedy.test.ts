// A sandbox that uses most of a processor yields to the others, and only for that long.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { isGreedy, keepGreedy } from "../src/runtime/cgroup-greedy.ts";
import { findCgroups, weightSetting } from "../src/runtime/cgroup-layout.ts";

void test("a sandbox that takes most of a processor counts as greedy, until it takes less than a third of one", () => {
  assert.equal(isGreedy(false, 0.7), false);
  assert.equal(isGreedy(false, 0.9), true);
  // Between the two thresholds the state stays, so that the weight does not change with every look.
  assert.equal(isGreedy(true, 0.4), true);
  assert.equal(isGreedy(true, 0.2), false);
});

const layout = findCgroups();
const root = layout.roots.get("cpu");

void test("the kernel's weight of a spinning group falls, its neighbour's stays, and it rises again when it idles", {
  skip: process.getuid?.() !== 0 || layout.version !== 1 || root === undefined ? "needs root and control groups of version 1" : false,
}, async (t) => {
  const parent = `svc-test-${process.pid}`;
  const places = [...new Set([root as string, layout.accounting as string])];
  for (const place of places) for (const name of ["", "spins", "rests"]) mkdirSync(join(place, parent, name));
  // The spinning process must get its processor, whatever else runs on the machine.
  writeFileSync(join(root as string, parent, "cpu.shares"), "262144");
  const spinning = spawn("/bin/sh", ["-c", "while :; do :; done"], { stdio: "ignore" });
  const weights = keepGreedy(layout, parent);
  t.after(async () => {
    weights.close();
    const gone = once(spinning, "exit");
    spinning.kill("SIGKILL");
    await gone;
    for (const place of places) for (const name of ["spins", "rests", ""]) rmdirSync(join(place, parent, name));
  });
  for (const place of places) writeFileSync(join(place, parent, "spins", "cgroup.procs"), String(spinning.pid));
  const weightOf = (name: string) => readFileSync(join(root as string, parent, name, "cpu.shares"), "utf8").trim();
  const until = async (name: string, value: string) => {
    for (let tries = 0; weightOf(name) !== value; tries++) {
      assert.ok(tries < 600, `the weight of "${name}" stays ${weightOf(name)}, expected ${value}`);
      await sleep(100);
    }
  };
  await until("spins", weightSetting(1, 1 / 16).value);
  assert.equal(weightOf("rests"), weightSetting(1, 1).value);
  spinning.kill("SIGSTOP");
  await until("spins", weightSetting(1, 1).value);
});
