// Precreated sandboxes of gVisor: a start in one equals an ordinary start, has its own limits, and leaves nothing of either behind.
import assert from "node:assert/strict";
import { closeSync, openSync, readdirSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Failure } from "@svc/contract/failures.ts";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { openLog } from "@svc/kit/log.ts";
import { openRuntime } from "@svc/sandbox/runtime/open-runtime.ts";
import { eventually } from "@svc/sandbox/runtime/process.ts";
import type { Checkpoint, Precreated, RuntimeHandle, StartSpec } from "@svc/sandbox/runtime/runtime.ts";
import { type Fixture, healthy, openFixture, remains, run, smallLimits } from "./runtime-fixture.ts";

const here = needs("root", "envd", "base", "runsc", "ip");
const HEALTHY_MS = 60_000;

async function precreatedFor(fixture: Fixture, spec: StartSpec): Promise<Precreated> {
  const { precreation } = fixture.runtime;
  const kind = await precreation?.kindOf(spec);
  assert.ok(precreation !== undefined && kind !== undefined);
  const { runtimeID, directory, network } = fixture.spec();
  return precreation.make(kind, { runtimeID, directory, network });
}

async function started(fixture: Fixture, spec: StartSpec): Promise<RuntimeHandle> {
  const handle = await fixture.runtime.start(spec);
  assert.ok(await eventually(() => healthy(handle), HEALTHY_MS));
  return handle;
}

/** Starts on the network of the precreated sandbox. */
const into = (spec: StartSpec, precreated: Precreated): StartSpec => ({ ...spec, network: precreated.handle.network, precreated });

async function paused(fixture: Fixture, handle: RuntimeHandle, end: Pick<RuntimeHandle, "runtimeID" | "directory">): Promise<Checkpoint> {
  await fixture.runtime.freeze(handle);
  const from = await fixture.checkpoint(handle, "memory");
  await fixture.runtime.destroy(end);
  return from;
}

void test(
  "a paused sandbox resumes in a precreated sandbox with its memory and files, over generations, and nothing of either is left after it",
  here,
  async () => {
    await using fixture = await openFixture("gvisor");
    const spec = fixture.spec();
    let handle = await started(fixture, spec);
    await run(
      handle,
      "sleep 100000 & echo $! >/dev/shm/sleeper; mkdir /opt/written; head -c 20M /dev/urandom >/opt/written/big; sha256sum /opt/written/big >/dev/shm/sum",
    );
    const precreatedIDs: string[] = [];
    for (const generation of [1, 2, 3]) {
      const from = await paused(fixture, handle, spec);
      const returning = { ...spec, bootID: crypto.randomUUID(), from };
      const precreated = await precreatedFor(fixture, returning);
      precreatedIDs.push(precreated.handle.runtimeID);
      handle = await started(fixture, into(returning, precreated));
      assert.deepEqual(handle, precreated.handle);
      assert.deepEqual(await fixture.runtime.list(), [spec.runtimeID]);
      const { stdout } = await run(
        handle,
        `kill -0 $(cat /dev/shm/sleeper) && sha256sum --quiet -c /dev/shm/sum && echo ${generation} >>/opt/written/generations && cat /opt/written/generations /proc/sys/kernel/random/boot_id && hostname`,
      );
      assert.equal(stdout, `${[1, 2, 3].slice(0, generation).join("\n")}\n${returning.bootID}\n${spec.hostname}\n`);
    }
    await fixture.runtime.destroy(spec);
    for (const runtimeID of [spec.runtimeID, ...precreatedIDs]) assert.deepEqual(remains(fixture.home, runtimeID), []);
    assert.deepEqual(await fixture.runtime.list(), []);
  },
);

void test("a first start in a precreated sandbox has the precreated sandbox's name and limits", here, async () => {
  await using fixture = await openFixture("gvisor");
  const spec = fixture.spec();
  const precreated = await precreatedFor(fixture, spec);
  const { runtimeID, directory } = precreated.handle;
  const handle = await started(fixture, into({ ...spec, runtimeID, directory, hostname: runtimeID }, precreated));
  const { stdout } = await run(handle, "hostname; cat /etc/hostname /proc/sys/kernel/random/boot_id");
  assert.equal(stdout, `${runtimeID}\n${runtimeID}\n${spec.bootID}\n`);
  assert.ok((await fixture.runtime.usage(handle)).memoryLimitBytes < 2 * smallLimits.memoryMB * 2 ** 20);
  assert.equal((await run(handle, "python3 -c 'x = bytearray(1 << 30)'")).exitCode, 137);
  assert.match((await run(handle, `for i in $(seq ${smallLimits.pids * 2}); do sleep 20 >/dev/null 2>&1 & done`)).stderr, /Cannot fork/);
  const { memoryKills, program } = await until("both are counted", async () => {
    const hits = await fixture.runtime.limitHits(handle);
    return hits.taskRefusals > 0 ? hits : undefined;
  });
  assert.deepEqual([memoryKills, program], [1, "python3"]);
  await assert.rejects(fixture.runtime.start(into({ ...spec, runtimeID, directory, hostname: runtimeID }, precreated)), Failure);
});

void test("a precreated sandbox that was made for other limits, another image or another envd is refused and destroyed", here, async () => {
  await using fixture = await openFixture("gvisor");
  const source = await started(fixture, fixture.spec());
  const from = await fixture.checkpoint(source, "memory");
  const spec = fixture.spec({ from });
  const others: Partial<StartSpec>[] = [
    { limits: { ...smallLimits, memoryMB: 257 } },
    { limits: { ...smallLimits, diskSizeMB: 65 } },
    { image: { ...spec.image, binds: ["/usr"] } },
    { envd: { ...spec.envd, args: [...spec.envd.args, "-init-key", "other"] } },
  ];
  for (const other of others) {
    const precreated = await precreatedFor(fixture, { ...spec, ...other });
    await assert.rejects(fixture.runtime.start(into(spec, precreated)), /a precreated sandbox of another kind/);
    for (const runtimeID of [spec.runtimeID, precreated.handle.runtimeID]) assert.deepEqual(remains(fixture.home, runtimeID), []);
  }
  assert.deepEqual(await fixture.runtime.list(), [source.runtimeID]);
});

void test("checkpoints of files alone, and of sandboxes that started from files alone, are started without a precreated sandbox", here, async () => {
  await using fixture = await openFixture("gvisor");
  const source = await started(fixture, fixture.spec());
  const files = await fixture.checkpoint(source, "filesystem");
  assert.equal(await fixture.runtime.precreation?.kindOf(fixture.spec({ from: files })), undefined);
  const again = await started(fixture, fixture.spec({ from: files }));
  assert.equal(await fixture.runtime.precreation?.kindOf(fixture.spec({ from: await fixture.checkpoint(again, "memory") })), undefined);
});

void test("a precreated sandbox of a killed node is found by its own id, and a used one by the sandbox's id", here, async () => {
  await using fixture = await openFixture("gvisor");
  const spec = fixture.spec();
  const from = await paused(fixture, await started(fixture, spec), spec);
  const [used, unused] = [await precreatedFor(fixture, { ...spec, from }), await precreatedFor(fixture, { ...spec, from })];
  const handle = await started(fixture, into({ ...spec, from }, used));
  const next = await openRuntime("gvisor", {
    home: fixture.home,
    spawner: fixture.spawner,
    log: openLog("runtime-test", "silent"),
    programs: { runsc: process.env["SVC_RUNSC"] },
  });
  assert.deepEqual(await next.list(), [spec.runtimeID, unused.handle.runtimeID].sort());
  await next.destroy(unused.handle);
  assert.equal(await healthy(handle), true);
  // This is how a sandbox with an unreadable record is destroyed: only its id and directory are known.
  await next.destroy(spec);
  for (const runtimeID of [spec.runtimeID, used.handle.runtimeID, unused.handle.runtimeID]) assert.deepEqual(remains(fixture.home, runtimeID), []);
  assert.equal(next.isAlive(handle), false);
});

/** Returns the pids of programs that wait next to a precreated sandbox for the rest of their command. */
function waitingFor({ handle: { directory } }: Precreated): string[] {
  return readdirSync("/proc").filter((pid) => {
    try {
      const argv = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
      return argv.includes("words-from") && argv.includes(join(directory, "starter")) && !argv.includes("/bin/sh");
    } catch {
      return false; // the process has just ended
    }
  });
}

void test("the runsc that waits next to a precreated sandbox ends with it, is optional, and runs no incomplete command", here, async () => {
  await using fixture = await openFixture("gvisor");
  const spec = fixture.spec();
  const from = await paused(fixture, await started(fixture, spec), spec);
  const [unused, cutOff] = [await precreatedFor(fixture, { ...spec, from }), await precreatedFor(fixture, { ...spec, from })];
  for (const precreated of [unused, cutOff]) assert.ok(await eventually(() => waitingFor(precreated).length === 1, HEALTHY_MS));

  await fixture.runtime.destroy(unused.handle);
  assert.deepEqual(waitingFor(unused), []);
  assert.deepEqual(remains(fixture.home, unused.handle.runtimeID), []);

  // This imitates a node that is killed while it writes the command.
  const pipe = openSync(join(cutOff.handle.directory, "starter"), "w");
  writeSync(pipe, `delete\n-force\n${cutOff.handle.runtimeID}\n`);
  closeSync(pipe);
  assert.ok(await eventually(() => waitingFor(cutOff).length === 0, HEALTHY_MS));
  assert.ok(fixture.runtime.isAlive(cutOff.handle));
  await started(fixture, into({ ...spec, from }, cutOff));
  await fixture.runtime.destroy(spec);
  for (const runtimeID of [spec.runtimeID, cutOff.handle.runtimeID]) assert.deepEqual(remains(fixture.home, runtimeID), []);
});
