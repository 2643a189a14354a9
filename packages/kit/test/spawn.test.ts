// The spawn helper: results, bounds, and its own death.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { openSpawner } from "../src/spawn.ts";

void test("a program's code, output and input pass through the helper", async () => {
  await using spawner = openSpawner();
  assert.equal(await spawner.check(["echo", "hello"]), "hello\n");
  assert.deepEqual(await spawner.run(["sh", "-c", "cat; echo oops >&2; exit 3"], { input: "abc" }), { code: 3, signal: null, stdout: "abc", stderr: "oops\n" });
});

void test("a program that fails, is missing, or does not end is a failure that names it", async () => {
  await using spawner = openSpawner();
  await assert.rejects(spawner.check(["sh", "-c", "echo because >&2; exit 1"]), /exit 1.*ended with 1: because/);
  await assert.rejects(spawner.check(["no-such-program-here"]), /no-such-program-here/);
  await assert.rejects(spawner.run(["sleep", "60"], { timeoutMs: 50 }), { name: "TIMED_OUT" });
});

void test("a helper that is killed fails what was in flight, and the next call has a new one", async () => {
  await using spawner = openSpawner();
  await spawner.check(["true"]);
  const waiting = spawner.run(["sleep", "60"]);
  process.kill(childNamed("spawn-helper"), "SIGKILL");
  await assert.rejects(waiting, /spawn helper ended/);
  assert.equal(await spawner.check(["echo", "again"]), "again\n");
});

/** The child of this process whose command line holds `word`. */
function childNamed(word: string): number {
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const parent = / (\d+) /.exec(readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) \S/, ""))?.[1];
      if (parent === String(process.pid) && readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(word)) return Number(pid);
    } catch {
      // ended meanwhile
    }
  }
  throw new Error(`no child with ${word}`);
}
