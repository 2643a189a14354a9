// Freezing, checkpointing and starting from checkpoints, for every driver: the files each keeps, and the rest after a failure.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdirSync, readdirSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Failure } from "@svc/contract/failures.ts";
import type { RuntimeName } from "@svc/sandbox/runtime/runtime.ts";
import type { Expected } from "./runtime-expected.ts";
import { healthy, isRoot, openFixture, remains, run, smallLimits } from "./runtime-fixture.ts";
import { groupMemoryBytes } from "./runtime-limits.suite.ts";

type It = (sentence: string, body: () => Promise<void>) => void;

const FROZEN_MS = 700;

/** Makes every kind of file that a checkpoint must restore; `showFiles` prints a line for each. */
const makeFiles = (at: string) => `cd ${at}; mkdir -p x/deep /tmp/keep; echo one >x/a; ln x/a x/b; ln -s a x/l; mkfifo x/p
cp /bin/true x/suid; chmod 4755 x/suid; dd if=/dev/urandom of=x/deep/bytes bs=64k count=20 2>/dev/null; chmod 600 x/deep/bytes
dd if=/dev/zero of=x/sparse bs=1 count=1 seek=200M 2>/dev/null; echo t >/tmp/keep/t; touch -d @1000000000 x/a; rm -r /usr/share/doc/bash; rm /etc/issue`;
const showFiles = (
  at: string,
) => `cd ${at}; find . /tmp -printf '%p %y %m %n %s %l\\n' | grep -v '^/tmp d' | sort; stat -c %Y x/a; [ x/a -ef x/b ] && echo linked
sha256sum x/deep/bytes x/sparse; ls -d /usr/share/doc/bash /etc/issue 2>/dev/null; cat /tmp/keep/t; ls /usr/share/doc | sha256sum`;

/** `at` is a folder that the sandbox may write. */
export function fileRounds(name: RuntimeName, at: string, it: It, rounds: number): void {
  it(`${rounds} rounds of pausing with files alone lose none`, async () => {
    await using fixture = await openFixture(name);
    let handle = await fixture.start();
    for (let round = 1; round <= rounds; round++) {
      const wrote = await run(
        handle,
        `echo round ${round} >>${at}/log; echo ${round} >/tmp/f${round}; rm -f /tmp/f$((${round} - 1)); mkdir -p ${at}/d${round}`,
      );
      assert.equal(wrote.exitCode, 0, wrote.stderr);
      await fixture.runtime.freeze(handle);
      const from = await fixture.checkpoint(handle, "filesystem");
      await fixture.runtime.destroy(handle);
      handle = await fixture.start({ from });
    }
    const { stdout } = await run(handle, `wc -l <${at}/log; ls -d /tmp/f* ${at}/d* | wc -l; cat /tmp/f${rounds}`);
    assert.equal(stdout, `${rounds}\n${rounds + 1}\n${rounds}\n`);
  });
}

export function checkpointTests(name: RuntimeName, expected: Expected, it: It): void {
  // A plain user's sandbox cannot change files of a template that another user owns.
  const at = expected.users ? "/opt" : "/home/user";
  fileRounds(name, at, it, 4);

  it("files are restored from a checkpoint unchanged, including deletions, and the checkpointed sandbox continues", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    await run(handle, `${makeFiles(at)}; nohup sleep 1000 >/dev/null 2>&1 & until pgrep -x sleep >/dev/null; do sleep 0.05; done`);
    const shown = await run(handle, showFiles(at));
    assert.match(shown.stdout, /linked/);
    const from = await fixture.checkpoint(handle, "filesystem");
    assert.equal((await run(handle, `echo more >>${at}/x/deep/bytes; pgrep -c sleep`)).stdout, "1\n", "it continues");
    const bootID = randomUUID();
    const child = await fixture.start({ from, bootID, hostname: "child" });
    assert.deepEqual(await run(child, showFiles(at)), shown);
    assert.equal((await run(child, "hostname; cat /proc/sys/kernel/random/boot_id; pgrep -c sleep")).stdout, `child\n${bootID}\n0\n`);
    const { stdout } = await run(
      child,
      `dd if=/dev/zero of=/tmp/big bs=1M count=${smallLimits.diskSizeMB + 20} 2>&1; rm /tmp/big; echo freed >/tmp/again; cat /tmp/again`,
    );
    assert.match(stdout, /No space left on device[\s\S]*freed/, "the limit counts what was there already");
    const use = await fixture.runtime.usage(child);
    if (expected.limits) assert.equal(use.memoryLimitBytes, groupMemoryBytes(name, smallLimits));
    await fixture.runtime.destroy(child);
    assert.deepEqual(remains(fixture.home, child.runtimeID), []);
    assert.equal(await healthy(handle), true);
  });

  it("files in /tmp are kept even when it was empty at the pause before", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    assert.equal((await run(handle, "find /tmp -mindepth 1 -delete; ls -A /tmp")).stdout, "");
    const child = await fixture.start({ from: await fixture.checkpoint(handle, "filesystem") });
    await run(child, "echo kept >/tmp/file");
    const grandchild = await fixture.start({ from: await fixture.checkpoint(child, "filesystem") });
    assert.equal((await run(grandchild, "cat /tmp/file; stat -c %a /tmp")).stdout, "kept\n1777\n");
  });

  it("a frozen sandbox is stopped until it is thawed, however often either is requested", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    const gaps = `import time
last, most = time.monotonic(), 0
while True:
    time.sleep(0.01); now = time.monotonic(); most = max(most, now - last); last = now
    open('/tmp/gap.new', 'w').write(str(int(most * 1000))); __import__('os').rename('/tmp/gap.new', '/tmp/gap')`;
    await run(handle, `nohup python3 -c "${gaps}" >/dev/null 2>&1 & while [ ! -s /tmp/gap ]; do sleep 0.05; done`);
    await fixture.runtime.freeze(handle);
    await fixture.runtime.freeze(handle);
    await sleep(FROZEN_MS / 2);
    await fixture.checkpoint(handle, "filesystem");
    await sleep(FROZEN_MS / 2);
    await fixture.runtime.thaw(handle);
    await fixture.runtime.thaw(handle);
    const { stdout } = await run(handle, `i=0; while [ "$(cat /tmp/gap)" -lt ${FROZEN_MS} ] && [ $i -lt 200 ]; do sleep 0.1; i=$((i+1)); done; cat /tmp/gap`);
    assert.ok(Number(stdout) >= FROZEN_MS, `a checkpoint leaves it frozen: ${stdout} ms`);
    await fixture.runtime.freeze(handle);
    await fixture.runtime.destroy(handle);
    assert.deepEqual(remains(fixture.home, handle.runtimeID), [], "a frozen one can be destroyed");
  });

  it("one checkpoint starts three at once, each on its own", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    await run(handle, `dd if=/dev/urandom of=${at}/bytes bs=1M count=4 2>/dev/null`);
    const { stdout: sum } = await run(handle, `sha256sum <${at}/bytes`);
    const from = await fixture.checkpoint(handle, "filesystem");
    const children = await Promise.all(["one", "two", "three"].map((hostname) => fixture.start({ from, hostname })));
    await Promise.all(children.map((child) => run(child, `hostname >${at}/mine`)));
    const answers = await Promise.all(children.map(async (child) => (await run(child, `sha256sum <${at}/bytes; cat ${at}/mine`)).stdout));
    assert.deepEqual(answers, [`${sum}one\n`, `${sum}two\n`, `${sum}three\n`]);
  });

  it("an impossible checkpoint is refused by name, and writes nothing", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    if (!fixture.runtime.checkpoints.has("memory")) {
      const into = { directory: fixture.folder(), kind: "memory" as const };
      await assert.rejects(
        fixture.runtime.checkpoint(handle, into),
        (error: Failure) => error.name === "CHECKPOINT_UNAVAILABLE" && /memory: false.*gvisor/.test(error.message),
      );
      await assert.rejects(fixture.runtime.start(fixture.spec({ from: into })), (error: Failure) => error.name === "CHECKPOINT_UNAVAILABLE");
    }
    const full = { directory: fixture.folder(), kind: "filesystem" as const };
    writeFileSync(join(full.directory, "file"), "");
    await assert.rejects(
      fixture.runtime.checkpoint(handle, full),
      (error: Failure) => error.name === "CHECKPOINT_FAILED" && error.message.includes("not empty"),
    );
    await fixture.runtime.destroy(handle);
    await assert.rejects(fixture.checkpoint(handle, "filesystem"), (error: Failure) => error.name === "SANDBOX_NOT_RUNNING");
  });

  it("a start from a damaged checkpoint fails as such and leaves nothing", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    await run(handle, `dd if=/dev/urandom of=${at}/bytes bs=1M count=4 2>/dev/null`);
    for (const kind of fixture.runtime.checkpoints) {
      const whole = await fixture.checkpoint(handle, kind);
      const files = readdirSync(whole.directory).filter((file) => file.endsWith(".img") || file.endsWith(".tar"));
      for (const file of files) {
        const from = { kind, directory: fixture.folder() };
        await fixture.spawner.check(["cp", "-a", `${whole.directory}/.`, from.directory]);
        truncateSync(join(from.directory, file), Math.floor(statSync(join(from.directory, file)).size / 2));
        const spec = fixture.spec({ from });
        await assert.rejects(
          fixture.runtime.start(spec),
          (error: Failure) => error.name === "SANDBOX_START_FAILED" && error.message.length > 40,
          `${kind} ${file}`,
        );
        assert.deepEqual(remains(fixture.home, spec.runtimeID), [], `${kind} ${file}`);
      }
    }
    await assert.rejects(fixture.runtime.start(fixture.spec({ from: { kind: "filesystem", directory: "/nowhere" } })), /\/nowhere/);
    assert.equal(await healthy(handle), true);
  });

  if (!isRoot) return;

  it("a checkpoint onto a full disk fails as such, leaves nothing, and the sandbox continues", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    await run(handle, `dd if=/dev/urandom of=${at}/bytes bs=1M count=8 2>/dev/null`);
    const small = join(fixture.home, "small");
    mkdirSync(small);
    await fixture.spawner.check(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", small]);
    try {
      for (const kind of fixture.runtime.checkpoints) {
        const directory = join(small, kind);
        mkdirSync(directory);
        await assert.rejects(fixture.runtime.checkpoint(handle, { directory, kind }), (error: Failure) => error.name === "DISK_FULL", kind);
        assert.deepEqual(readdirSync(directory), []);
        assert.equal((await run(handle, "echo fine")).stdout, "fine\n");
      }
      await fixture.runtime.freeze(handle);
      await assert.rejects(fixture.runtime.checkpoint(handle, { directory: join(small, "filesystem"), kind: "filesystem" }), { name: "DISK_FULL" });
      await fixture.runtime.thaw(handle);
      const child = await fixture.start({ from: await fixture.checkpoint(handle, "filesystem") });
      assert.equal((await run(child, `wc -c <${at}/bytes`)).stdout, `${8 * 2 ** 20}\n`, "the next one works");
    } finally {
      await fixture.spawner.run(["umount", "-l", small]);
    }
  });
}
