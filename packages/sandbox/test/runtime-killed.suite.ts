// The state after runsc itself is killed in the middle of a verb: the sandbox runs, or is known to be stopped.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { signal } from "@svc/sandbox/runtime/process.ts";
import type { RuntimeName } from "@svc/sandbox/runtime/runtime.ts";
import { openFixture, run } from "./runtime-fixture.ts";

type It = (sentence: string, body: () => Promise<void>) => void;

/** Times after a verb's start at which its program is killed; the verbs take 10 to 100 ms on a quiet machine. */
const KILL_AFTER_MS = [0, 3, 8, 15, 30, 60];
const LOOK_EVERY_MS = 1;
const LOOK_FOR_MS = 5_000;

export function killedTests(name: RuntimeName, it: It): void {
  it("the state after a freeze or thaw that was cut off before or after its work is determined", async () => {
    await using fixture = await openFixture(name);
    const { freeze, thaw } = fixture.runtime;
    const handle = await fixture.start();
    // The mark is written before the kernel inside is called; a write that was cut off leaves it empty.
    const cutOff = (mark: string) => writeFileSync(join(handle.directory, "freezing"), mark);
    for (const mark of ["unknown", ""]) {
      cutOff(mark);
      await freeze(handle);
      cutOff(mark);
      // A sandbox stopped twice would need to be resumed twice.
      await freeze(handle);
      await thaw(handle);
      assert.equal((await run(handle, "echo runs")).stdout, "runs\n");
      cutOff(mark);
      // A sandbox resumed once too often would end.
      await thaw(handle);
      assert.equal((await run(handle, "echo runs")).stdout, "runs\n");
      await freeze(handle);
      cutOff(mark);
      await thaw(handle);
      assert.equal((await run(handle, "echo runs")).stdout, "runs\n");
    }
  });

  it("runsc killed while it checkpoints leaves the sandbox running and nothing in the directory, and the next checkpoint is good", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    await run(handle, "dd if=/dev/urandom of=/opt/bytes bs=1M count=20 2>/dev/null");
    const { stdout: sum } = await run(handle, "sha256sum /opt/bytes");
    let killed = 0;
    for (const afterMs of KILL_AFTER_MS) {
      for (const [kind, verb] of [
        ["memory", "checkpoint"],
        ["filesystem", "fscheckpoint"],
      ] as const) {
        const into = { directory: fixture.folder(), kind };
        const [outcome] = await Promise.allSettled([fixture.runtime.checkpoint(handle, into), killClient(fixture.home, verb, handle.runtimeID, afterMs)]);
        if (outcome.status === "rejected") {
          killed += 1;
          assert.equal((outcome.reason as Error).name, "CHECKPOINT_FAILED");
          assert.deepEqual(readdirSync(into.directory), []);
        }
        assert.equal((await run(handle, "echo runs")).stdout, "runs\n", `${kind} killed after ${afterMs} ms`);
      }
    }
    assert.ok(killed > 0, "at least one was hit");
    for (const kind of ["memory", "filesystem"] as const) {
      const child = await fixture.start({ from: await fixture.checkpoint(handle, kind) });
      assert.equal((await run(child, "sha256sum /opt/bytes")).stdout, sum);
    }
  });
}

/** Waits for the program to start, then a little longer, then kills it; a program that ends too soon is missed. */
async function killClient(home: string, verb: string, runtimeID: string, afterMs: number): Promise<void> {
  const end = performance.now() + LOOK_FOR_MS;
  while (performance.now() < end) {
    const pid = readdirSync("/proc").find((entry) => /^\d+$/.test(entry) && isClient(Number(entry), home, verb, runtimeID));
    if (pid !== undefined) {
      await sleep(afterMs);
      if (isClient(Number(pid), home, verb, runtimeID)) signal(Number(pid), "SIGKILL");
      return;
    }
    await sleep(LOOK_EVERY_MS);
  }
}

function isClient(pid: number, home: string, verb: string, runtimeID: string): boolean {
  try {
    const argv = readFileSync(`/proc/${pid}/cmdline`, "latin1").split("\0");
    return argv[1]?.startsWith(`--root=${home}/`) === true && argv[2] === verb && argv.includes(runtimeID);
  } catch {
    return false;
  }
}
