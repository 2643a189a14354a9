// The limits of a sandbox, for every driver: disk, processes, memory, CPU.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { until } from "@svc/harness/until.ts";
import { openCgroups } from "@svc/sandbox/runtime/cgroup.ts";
import { hardMemoryBytes } from "@svc/sandbox/runtime/gvisor-guest-limits.ts";
import type { Limits, RuntimeName } from "@svc/sandbox/runtime/runtime.ts";
import type { Expected } from "./runtime-expected.ts";
import { healthy, openFixture, remains, run, smallLimits } from "./runtime-fixture.ts";

type It = (sentence: string, body: () => Promise<void>) => void;

/** Returns the limit at which the host's kernel kills programs; gVisor's own kernel kills them earlier. */
export const groupMemoryBytes = (name: RuntimeName, limits: Limits) => (name === "gvisor" ? hardMemoryBytes(limits) : limits.memoryMB * 2 ** 20);

/** Touches every page of an array that grows forever. */
const memoryBomb = `python3 -c "
held = []
while True: held.append(bytearray(16 * 1024 * 1024))
"`;

export function limitTests(name: RuntimeName, expected: Expected, it: It): void {
  it("a full disk answers ENOSPC, and the sandbox still works", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    const over = await run(handle, `dd if=/dev/zero of=/big bs=1M count=${smallLimits.diskSizeMB + 20}`);
    assert.match(over.stderr, /No space left on device/);
    assert.match((await run(handle, "dd if=/dev/zero of=/tmp/more bs=1M count=8")).stderr, /No space left on device/, "/tmp counts too");
    assert.equal(await healthy(handle), true);
    // A mapping without backing may kill its program, but never the sandbox.
    await run(
      handle,
      `python3 -c "
import mmap, os
f = os.open('/mapped', os.O_RDWR | os.O_CREAT); os.ftruncate(f, 64 << 20); m = mmap.mmap(f, 64 << 20)
for at in range(0, 64 << 20, 4096): m[at] = 1
"`,
    ).catch(() => {});
    assert.equal(await healthy(handle), true);
    assert.equal((await run(handle, "rm -f /big /tmp/more /mapped; echo again >/file && cat /file")).stdout, "again\n");
  });

  it("a user who forks endlessly reaches the limit; envd and other sandboxes answer", async () => {
    await using fixture = await openFixture(name);
    const [handle, neighbour] = [await fixture.start(), await fixture.start()];
    const user = expected.users ? "user" : "root";
    const command = `i=0; while [ $i -lt ${smallLimits.pids * 3} ]; do sleep 30 >/dev/null 2>&1 & i=$((i+1)); done; echo went on`;
    const ended = await run(handle, command, user).catch((error: Error) => ({ exitCode: -1, stdout: "", stderr: error.message }));
    assert.ok(!ended.stdout.includes("went on") || /fork/i.test(ended.stderr), JSON.stringify(ended));
    assert.equal(await healthy(handle), true);
    assert.equal(await healthy(neighbour), true);
    assert.equal((await run(neighbour, "echo fine")).stdout, "fine\n");
  });

  if (!expected.limits) return;

  it("a program that takes more memory than the limit is killed; the sandbox and its neighbours survive", async () => {
    await using fixture = await openFixture(name);
    const [handle, neighbour] = [await fixture.start(), await fixture.start()];
    assert.equal((await run(handle, memoryBomb)).exitCode, 137);
    assert.equal(await healthy(handle), true);
    assert.equal(await fixture.runtime.deathReason(handle), "oom", "the kernel counted it");
    assert.equal(await healthy(neighbour), true);
    assert.equal(await fixture.runtime.deathReason(neighbour), "crashed", "no such death there");
  });

  it("when the kernel kills the first process for lack of memory, the sandbox is dead and the reason is oom", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    writeFileSync(`/proc/${handle.pid}/oom_score_adj`, "1000"); // makes the kernel choose this process
    if (name === "gvisor") {
      // gVisor's own kernel kills the program before the host's has to, so the host's limit is set below it.
      const { layout, memoryFiles } = openCgroups(fixture.home);
      const { usage } = memoryFiles(handle.runtimeID);
      const limit = join(dirname(usage), layout.version === 1 ? "memory.limit_in_bytes" : "memory.max");
      writeFileSync(limit, String(Number(readFileSync(usage, "utf8")) + 32 * 2 ** 20));
    }
    // A killed network stack closes no connection, so the answer would never arrive.
    const abandoned = new AbortController();
    const raised = "until read -r score </proc/self/oom_score_adj && [ $score = 500 ]; do sleep 0.1; done"; // by envd, just after the start
    const bomb = run(handle, `${raised}; echo 0 >/proc/self/oom_score_adj; ${memoryBomb}`, "root", abandoned.signal).catch(() => {});
    await until("the sandbox is seen dead", () => (fixture.runtime.isAlive(handle) ? undefined : true));
    abandoned.abort();
    await bomb;
    assert.equal(await fixture.runtime.deathReason(handle), "oom");
    await fixture.runtime.destroy(handle);
    assert.deepEqual(remains(fixture.home, handle.runtimeID), []);
  });

  it("limits of CPU, memory and processes are set in the control group before the first process runs", async () => {
    await using fixture = await openFixture(name);
    const limits = { ...smallLimits, cpuCount: 2, memoryMB: 300 };
    const handle = await fixture.start({ limits });
    const cgroups = openCgroups(fixture.home);
    const path = cgroups.pathOf(handle.runtimeID);
    const file = (controller: "cpu" | "memory" | "pids", one: string, two: string) =>
      readFileSync(join(cgroups.layout.roots.get(controller) ?? "", path, cgroups.layout.version === 1 ? one : two), "utf8").trim();
    assert.equal(file("memory", "memory.limit_in_bytes", "memory.max"), String(groupMemoryBytes(name, limits)));
    assert.ok(["200000", "200000 100000"].includes(file("cpu", "cpu.cfs_quota_us", "cpu.max")));
    assert.ok(Number(file("pids", "pids.max", "pids.max")) >= smallLimits.pids);
    for (const entrance of cgroups.entrances(handle.runtimeID)) assert.ok(readFileSync(entrance, "utf8").split("\n").includes(String(handle.pid)), entrance);
    const ofAll = join(cgroups.layout.roots.get("cpu") ?? "", path, "..");
    const [share, usual] = cgroups.layout.version === 1 ? ["cpu.shares", 1024] : ["cpu.weight", 100];
    // All sandboxes together use little of the processors, and have the weight of one session of the host.
    await until("they weigh as much", () => (Number(readFileSync(join(ofAll, share), "utf8")) === usual ? true : undefined));
    if (name === "gvisor") assert.match((await run(handle, "grep MemTotal /proc/meminfo")).stdout, new RegExp(`\\b${300 * 1024} kB`));
  });
}
