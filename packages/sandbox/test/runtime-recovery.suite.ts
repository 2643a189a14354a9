// The state after a failed start or a killed starter, for every driver: list and destroy find everything that is left.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Failure } from "@svc/contract/failures.ts";
import { openLog } from "@svc/kit/log.ts";
import { openRuntime } from "@svc/sandbox/runtime/open-runtime.ts";
import { eventually, startTicksOf } from "@svc/sandbox/runtime/process.ts";
import type { RuntimeHandle, RuntimeName } from "@svc/sandbox/runtime/runtime.ts";
import { healthy, isRoot, openFixture, remains, run, smallLimits } from "./runtime-fixture.ts";

type It = (sentence: string, body: () => Promise<void>) => void;

const CLEARED_BOUND_MS = 10_000;
/** Times after its beginning at which a start is cut off; a complete start takes 40 to 150 ms. */
const KILL_AFTER_MS = [15, 40, 80, 120];

const childrenOf = (pid: number): number[] => readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").filter(Boolean).map(Number);

export function recoveryTests(name: RuntimeName, it: It): void {
  const again = (fixture: { home: string; spawner: Parameters<typeof openRuntime>[1]["spawner"] }) =>
    openRuntime(name, { home: fixture.home, spawner: fixture.spawner, log: openLog("runtime-test", "silent"), programs: { runsc: process.env["SVC_RUNSC"] } });

  it("a failed start gives its reason and leaves nothing", async () => {
    await using fixture = await openFixture(name);
    const missing = fixture.spec({ image: { rootfs: "/nowhere/rootfs", binds: [] } });
    await assert.rejects(
      fixture.runtime.start(missing),
      (error: Failure) => error.name === "SANDBOX_START_FAILED" && error.message.includes("/nowhere/rootfs"),
    );
    const empty = join(fixture.home, "empty");
    mkdirSync(empty);
    const broken = join(fixture.home, "broken-envd");
    writeFileSync(broken, "not a program", { mode: 0o755 });
    const badEnvd = fixture.spec({ image: { rootfs: empty, binds: [] }, envd: { binary: broken, args: [], env: {} } });
    await assert.rejects(fixture.runtime.start(badEnvd), (error: Failure) => error.name === "SANDBOX_START_FAILED" && error.message.length > 40);
    const badName = fixture.spec({ runtimeID: "../../etc" });
    await assert.rejects(fixture.runtime.start(badName), /runtime id/);
    assert.deepEqual(await fixture.runtime.list(), []);
    for (const { runtimeID } of [missing, badEnvd]) assert.deepEqual(remains(fixture.home, runtimeID), []);
  });

  it("sandboxes survive the process that started them; the next process finds, uses and destroys them", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    await run(handle, "echo kept >/kept");
    const record = JSON.parse(JSON.stringify(handle)) as RuntimeHandle;
    await fixture.runtime.close();
    await using next = await again(fixture);
    assert.deepEqual(await next.list(), [record.runtimeID]);
    assert.equal(next.isAlive(record), true);
    assert.equal((await run(record, "cat /kept")).stdout, "kept\n");
    await next.destroy({ runtimeID: record.runtimeID, directory: join(fixture.home, "elsewhere") });
    assert.deepEqual(remains(fixture.home, record.runtimeID), []);
  });

  it("a half-made sandbox of a killed starter is listed and can be destroyed", async () => {
    await using fixture = await openFixture(name);
    for (const afterMs of KILL_AFTER_MS) {
      const spec = fixture.spec();
      const starter = spawn(
        process.execPath,
        ["--disable-warning=ExperimentalWarning", fileURLToPath(new URL("./runtime-starter.ts", import.meta.url)), name, fixture.home, JSON.stringify(spec)],
        {
          stdio: ["ignore", "pipe", "inherit"],
        },
      );
      await once(starter.stdout, "data"); // the starter is about to start the sandbox
      await sleep(afterMs);
      const helpers = childrenOf(starter.pid ?? 0);
      starter.kill("SIGKILL");
      await once(starter, "exit");
      // The helper that forks for the starter notices its death a moment later, and may have started one more program by then.
      await eventually(() => helpers.every((pid) => startTicksOf(pid) === undefined), CLEARED_BOUND_MS);
      let clearLooks = 0;
      const clear = async () => {
        for (const runtimeID of await fixture.runtime.list())
          await fixture.runtime.destroy({ runtimeID, directory: join(fixture.home, "sandboxes", runtimeID) });
        return remains(fixture.home, spec.runtimeID).length === 0;
      };
      await eventually(async () => {
        clearLooks = (await clear()) ? clearLooks + 1 : 0;
        return clearLooks === 3;
      }, CLEARED_BOUND_MS);
      assert.deepEqual(remains(fixture.home, spec.runtimeID), [], `killed after ${afterMs} ms`);
      assert.deepEqual(await fixture.runtime.list(), []);
    }
  });

  it("a sandbox without its mark, as after a destroy that a late start overtook, is listed and can be destroyed", async () => {
    await using fixture = await openFixture(name);
    const { runtimeID, directory } = await fixture.start();
    rmSync(join(fixture.home, "run", "marks", name, runtimeID));
    assert.deepEqual(await fixture.runtime.list(), [runtimeID]);
    await fixture.runtime.destroy({ runtimeID, directory });
    assert.deepEqual(remains(fixture.home, runtimeID), []);
  });

  it("two homes on one machine do not see each other", async () => {
    await using one = await openFixture(name);
    await using two = await openFixture(name);
    const [first, second] = [await one.start(), await two.start()];
    assert.deepEqual([await one.runtime.list(), await two.runtime.list()], [[first.runtimeID], [second.runtimeID]]);
    await one.runtime.close({ everything: true });
    assert.equal(one.runtime.isAlive(first), false);
    assert.equal(await healthy(second), true);
  });

  it("five sandboxes start concurrently", async () => {
    await using fixture = await openFixture(name);
    const handles = await Promise.all(Array.from({ length: 5 }, () => fixture.start()));
    const answers = await Promise.all(handles.map((handle) => run(handle, "echo $((6*7))")));
    assert.deepEqual(
      answers.map(({ stdout }) => stdout),
      Array.from({ length: 5 }, () => "42\n"),
    );
    await Promise.all(handles.map((handle) => fixture.runtime.destroy(handle)));
    for (const { runtimeID } of handles) assert.deepEqual(remains(fixture.home, runtimeID), []);
  });

  if (!isRoot) return;

  it("a start on a full disk fails as such and leaves nothing", async () => {
    await using fixture = await openFixture(name);
    const small = join(fixture.home, "small");
    mkdirSync(small);
    await fixture.spawner.check(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", small]);
    try {
      writeFileSync(join(small, "filler"), Buffer.alloc(12 * 1024));
      const spec = fixture.spec({ limits: { ...smallLimits, diskSizeMB: 512 } });
      const directory = join(small, spec.runtimeID);
      await assert.rejects(
        fixture.runtime.start({ ...spec, directory }),
        (error: Failure) => error instanceof Failure && /DISK_FULL|SANDBOX_START_FAILED/.test(error.name),
      );
      assert.deepEqual(remains(fixture.home, spec.runtimeID), []);
      assert.deepEqual(await fixture.runtime.list(), []);
    } finally {
      await fixture.spawner.run(["umount", "-l", small]);
    }
  });
}
