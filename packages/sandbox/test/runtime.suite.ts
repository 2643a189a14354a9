// The requirements on every runtime driver; run against each of them.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { isSameProcess, signal } from "@svc/sandbox/runtime/process.ts";
import type { RuntimeHandle, RuntimeName } from "@svc/sandbox/runtime/runtime.ts";
import { bombTests } from "./runtime-bombs.suite.ts";
import { checkpointTests } from "./runtime-checkpoint.suite.ts";
import type { Expected } from "./runtime-expected.ts";
import { healthy, image, newRuntimeID, openFixture, remains, run, smallLimits } from "./runtime-fixture.ts";
import { layerTests } from "./runtime-layer.suite.ts";
import { groupMemoryBytes, limitTests } from "./runtime-limits.suite.ts";
import { recoveryTests } from "./runtime-recovery.suite.ts";

export function runtimeSuite(name: RuntimeName, label: string, expected: Expected, { skip }: { skip: string | false }): void {
  const it = (sentence: string, body: () => Promise<void>) => void test(`${label}: ${sentence}`, { skip }, body);

  it("a started sandbox answers and knows its own name, without DNS", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    assert.equal(handle.runtime, name);
    assert.equal(fixture.runtime.isAlive(handle), true);
    const { stdout } = await run(handle, "hostname; cat /etc/hostname; getent hosts brave-box; cat /etc/resolv.conf; cat /proc/1/comm");
    assert.match(stdout, /^brave-box\nbrave-box\n127\.0\.1\.1\s+brave-box\n/);
    if (handle.network !== undefined) assert.ok(stdout.includes(`nameserver ${handle.network.gatewayAddress}`), stdout);
    assert.match(stdout, /envd\n$/, "envd is the first process");
  });

  it("commands run as the user, who may become root", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    assert.equal((await run(handle, "id -u")).stdout, "0\n");
    if (expected.users) {
      assert.equal((await run(handle, "id -un; pwd; touch mine && stat -c %U mine", "user")).stdout, "user\n/home/user\nuser\n");
    }
    if (expected.sudo) assert.equal((await run(handle, "sudo -n id -u", "user")).stdout, "0\n");
  });

  it("two sandboxes have different machine ids and boot ids, and neither has the host's", async () => {
    await using fixture = await openFixture(name);
    const command = "cat /etc/machine-id /proc/sys/kernel/random/boot_id";
    const [one, two] = await Promise.all([fixture.start(), fixture.start()]);
    const texts = [(await run(one, command)).stdout, (await run(two, command)).stdout];
    const lines = texts.flatMap((text) => text.trim().split("\n"));
    assert.equal(new Set(lines).size, 4, lines.join(" "));
    assert.ok(!lines.includes(readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim()));
  });

  it("the template, its binds and envd cannot be changed from inside, all else can", async () => {
    await using fixture = await openFixture(name);
    const host = await fixture.start({ image: image("host") });
    const answer = await run(
      host,
      "touch /usr/bin/mine; chmod 777 /.svc/envd; echo x >/proc/sys/kernel/random/boot_id; touch /etc/mine /var/tmp/mine && echo made",
    );
    assert.match(answer.stdout, /made/);
    assert.equal(answer.stderr.match(/Read-only file system|Permission denied|I\/O error/g)?.length, 3, answer.stderr);
    const other = await fixture.start({ image: image("host") });
    assert.notEqual((await run(other, "ls /etc/mine")).exitCode, 0, "a sandbox does not see another's files");
    assert.equal((await run(other, "echo '10.1.2.3 more' >>/etc/hosts && sed -i s/more/less/ /etc/hosts && getent hosts less")).exitCode, 0);
  });

  it("the host's processes, mounts and files are invisible inside", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    const { stdout } = await run(handle, "ls -d /proc/[0-9]* | wc -l; cat /proc/mounts; ls /dev");
    assert.ok(Number(stdout.split("\n")[0]) < 10, stdout);
    assert.ok(!/\/dev\/(vd|sd|nvme|loop)[a-z0-9]* \/(boot|home|root|work)/.test(stdout), stdout);
    assert.ok(!/\b(kmsg|mem|kvm|loop-control)\b/.test(stdout.slice(stdout.lastIndexOf(" / "))), "no devices of the host");
    for (const attempt of ["mount -t tmpfs x /mnt", "unshare -U true", "echo x >/proc/sys/kernel/core_pattern", "echo b >/proc/sysrq-trigger"]) {
      if (name === "gvisor" && attempt.startsWith("unshare")) continue; // affects its own kernel only
      assert.notEqual((await run(handle, attempt)).exitCode, 0, attempt);
    }
    if (name === "gvisor") return;
    assert.match((await run(handle, "grep Seccomp: /proc/self/status")).stdout, /\b2\b/);
    // 425 is io_uring_setup on every architecture; without the filter it would answer EFAULT.
    const call = `python3 -c "import ctypes; c = ctypes.CDLL(None, use_errno=True); c.syscall(425, 1, 0); print(ctypes.get_errno())"`;
    assert.equal((await run(handle, call)).stdout, "1\n", "the filter answers EPERM");
  });

  it("destroy leaves no process, mount, control group, loop device or file, and can be repeated", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    await run(handle, "nohup sleep 1000 >/dev/null 2>&1 & setsid sleep 1000 >/dev/null 2>&1 & dd if=/dev/zero of=/file bs=1M count=5 2>/dev/null");
    assert.deepEqual(await fixture.runtime.list(), [handle.runtimeID]);
    assert.notDeepEqual(remains(fixture.home, handle.runtimeID), []);
    await fixture.runtime.destroy(handle);
    assert.deepEqual(remains(fixture.home, handle.runtimeID), []);
    assert.equal(fixture.runtime.isAlive(handle), false);
    assert.deepEqual(await fixture.runtime.list(), []);
    await fixture.runtime.destroy(handle);
    await fixture.runtime.destroy({ runtimeID: newRuntimeID(), directory: `${fixture.home}/never` });
  });

  it("destroying a sandbox leaves another whose id has the same beginning", async () => {
    await using fixture = await openFixture(name);
    const short = "aaaabbbbccccdddd";
    const [one, two] = [await fixture.start({ runtimeID: short }), await fixture.start({ runtimeID: `${short}e` })];
    await fixture.runtime.destroy(one);
    assert.equal(await healthy(two), true);
    assert.deepEqual(await fixture.runtime.list(), [two.runtimeID]);
  });

  it("a sandbox whose first process is killed is dead immediately, and the reason is a crash", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    signal(handle.pid, "SIGKILL");
    await until("the sandbox is seen dead", () => (fixture.runtime.isAlive(handle) ? undefined : true));
    assert.equal(await fixture.runtime.deathReason(handle), "crashed");
    await fixture.runtime.destroy(handle);
    assert.deepEqual(remains(fixture.home, handle.runtimeID), []);
  });

  it("a pid that was reused by another process does not keep a sandbox alive", async () => {
    await using fixture = await openFixture(name);
    const handle: RuntimeHandle = { ...(await fixture.start()) };
    assert.equal(isSameProcess({ pid: handle.pid, startTicks: handle.pidStartTicks }), true);
    assert.equal(fixture.runtime.isAlive({ ...handle, pidStartTicks: handle.pidStartTicks - 1 }), false);
    assert.equal(fixture.runtime.isAlive({ ...handle, pid: process.pid }), false);
  });

  it("usage is reported in bytes and nanoseconds", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    await run(handle, "dd if=/dev/zero of=/file bs=1M count=8 2>/dev/null; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done");
    const use = await fixture.runtime.usage(handle);
    assert.ok(use.memoryBytes > 500_000 && use.memoryBytes < 256 * 2 ** 20, String(use.memoryBytes));
    assert.ok(use.diskBytes >= 8 * 2 ** 20 && use.diskBytes < 64 * 2 ** 20, String(use.diskBytes));
    assert.ok(use.pids >= 1);
    if (expected.limits) {
      assert.equal(use.memoryLimitBytes, groupMemoryBytes(name, smallLimits));
      assert.ok(use.cpuNs > 1_000_000);
    }
  });

  limitTests(name, expected, it);
  if (expected.limits) bombTests(name, it);
  recoveryTests(name, it);
  checkpointTests(name, expected, it);
  layerTests(name, it);
}
