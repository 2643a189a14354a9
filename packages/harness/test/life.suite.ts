// Pause, resume, snapshot and fork with the JS SDK: nothing is lost, and a resumed sandbox keeps its identity.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { pauseSandbox, resumeSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox, getSandbox, listSandboxes, setSandboxTimeout } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { leftovers } from "../src/leftovers.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

const ROUNDS = 10;
const COUNTER = `import time
i = 0
while True:
    i += 1
    open("/home/user/count.new", "w").write(str(i))
    __import__("os").rename("/home/user/count.new", "/home/user/count")
    time.sleep(0.02)`;

export function lifeSuite(): void {
  void describe("a sandbox's life on gvisor", needs("root", "envd", "base", "runsc"), () => {
    let node: TestNode;
    const connection = () => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });
    const create = (options: object = {}) => Sandbox.create("base", { ...connection(), timeoutMs: 600_000, ...options });
    const text = async (sandbox: Sandbox, command: string) => (await sandbox.commands.run(command)).stdout.trim();
    const stateOf = async (sandboxID: string) => (await node.call(getSandbox, { sandboxID })).state;

    before(async () => {
      node = await startNode({ runtime: "gvisor" });
    });
    after(() => node[Symbol.asyncDispose]());

    void test("ten rounds of pause and resume lose no byte of memory or files, and keep every identity", async () => {
      const sandbox = await create();
      await sandbox.files.write("counter.py", COUNTER);
      await sandbox.commands.run("dd if=/dev/urandom of=data bs=1M count=20 status=none; mkdir -p /tmp/deep/er; echo here > /tmp/deep/er/file");
      const counter = await sandbox.commands.run("python3 counter.py", { background: true });
      await until("the counter", async () => (await sandbox.files.exists("count")) || undefined);
      const identity = "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id; sha256sum data; cat /tmp/deep/er/file";
      const first = await text(sandbox, identity);
      const token = (await node.call(getSandbox, { sandboxID: sandbox.sandboxId })).envdAccessToken;
      let count = 0;
      for (let round = 1; round <= ROUNDS; round++) {
        await sandbox.commands.run(`echo ${round} >> rounds`);
        assert.equal(await sandbox.pause(), true);
        assert.equal(await stateOf(sandbox.sandboxId), "paused");
        await Sandbox.connect(sandbox.sandboxId, connection());
        const before = count;
        count = await until("the counter to go on", async () => {
          const now = Number(await text(sandbox, "cat count"));
          return now > before ? now : undefined;
        });
        assert.equal(await text(sandbox, identity), first, `after round ${round}`);
      }
      assert.equal(await text(sandbox, "cat rounds"), Array.from({ length: ROUNDS }, (_, index) => index + 1).join("\n"));
      assert.equal((await node.call(getSandbox, { sandboxID: sandbox.sandboxId })).envdAccessToken, token);
      // It is the same process: only its stream has ended.
      assert.ok((await sandbox.commands.list()).some(({ pid }) => pid === counter.pid));
    });

    void test("a timeout that is set while a sandbox resumes waits for the resume and then applies", async () => {
      const { sandboxId: sandboxID } = await create();
      const timeout = () => node.call(setSandboxTimeout, { sandboxID, timeout: 1234 });
      await node.call(pauseSandbox, { sandboxID });
      await assert.rejects(timeout(), { name: "SANDBOX_PAUSED" });
      const resumed = node.call(resumeSandbox, { sandboxID, timeout: 60 });
      await until("the timeout to be taken", () =>
        timeout().then(
          () => true,
          (error: Error) => (error.name === "SANDBOX_PAUSED" ? undefined : Promise.reject(error)),
        ),
      );
      await resumed;
      const { startedAt, endAt } = await node.call(getSandbox, { sandboxID });
      assert.ok(Date.parse(endAt) - Date.parse(startedAt) > 1_000_000, `${startedAt} to ${endAt}`);
      await node.call(deleteSandbox, { sandboxID });
    });

    void test("while it is paused nothing of it runs, clients see that it is not running, and another pause reports that it was already paused", async () => {
      const sandbox = await create();
      await sandbox.pause();
      await until("its parts to go", () => {
        const left = leftovers(node.home);
        const all = [...left.cgroups, ...left.mounts, ...left.processes, ...left.directories];
        return all.some((what) => what.includes(sandbox.sandboxId)) ? undefined : true;
      });
      assert.equal(await sandbox.isRunning(), false);
      assert.equal(await sandbox.pause(), false);
      const listed = await node.call(listSandboxes, { state: "paused" });
      assert.ok(listed.some(({ sandboxID }) => sandboxID === sandbox.sandboxId));
      assert.ok(!(await node.call(listSandboxes, { state: "running" })).some(({ sandboxID }) => sandboxID === sandbox.sandboxId));
      assert.equal((await node.call(getSandbox, { sandboxID: sandbox.sandboxId })).pauseMode, "full");
    });

    void test("a pause of files alone keeps them, ends the processes and has a new boot id", async () => {
      const sandbox = await create({ envs: { COLOUR: "green" } });
      await sandbox.commands.run("echo kept > kept; sudo rm /etc/motd; sleep 1000 & disown");
      const boot = await text(sandbox, "cat /proc/sys/kernel/random/boot_id");
      const machine = await text(sandbox, "cat /etc/machine-id");
      await sandbox.pause({ keepMemory: false });
      assert.equal((await node.call(getSandbox, { sandboxID: sandbox.sandboxId })).pauseMode, "filesystem");
      await Sandbox.connect(sandbox.sandboxId, connection());
      assert.equal(await text(sandbox, "cat kept; test -e /etc/motd || echo gone; echo $COLOUR; pgrep -c sleep || true"), "kept\ngone\ngreen\n0");
      assert.notEqual(await text(sandbox, "cat /proc/sys/kernel/random/boot_id"), boot);
      assert.equal(await text(sandbox, "cat /etc/machine-id; sudo hostname"), `${machine}\n${sandbox.sandboxId}`);
    });

    void test("a sandbox that was paused with its memory can be restarted from its files", async () => {
      const sandbox = await create();
      await sandbox.commands.run("echo kept > kept; sleep 1000 & disown");
      await sandbox.pause();
      await fetch(`${node.url}/v2/sandboxes/${sandbox.sandboxId}/connect`, {
        method: "POST",
        headers: { "x-api-key": node.apiKey, "content-type": "application/json" },
        body: JSON.stringify({ timeout: 600, memory: false }),
      });
      assert.equal(await text(sandbox, "cat kept; pgrep -c sleep || true"), "kept\n0");
    });

    void test("a pause at the timeout keeps the same as a manual pause, and traffic resumes the sandbox", async () => {
      const sandbox = await create({ lifecycle: { onTimeout: "pause", autoResume: true } });
      await sandbox.files.write("counter.py", COUNTER);
      await sandbox.commands.run("python3 counter.py", { background: true });
      await until("the counter", async () => (await sandbox.files.exists("count")) || undefined);
      await sandbox.setTimeout(1_000);
      const before = await until("the pause", async () => ((await stateOf(sandbox.sandboxId)) === "paused" ? true : undefined));
      assert.ok(before);
      // Twenty requests at once cause one resume, and all of them are answered.
      const counts = await Promise.all(Array.from({ length: 20 }, () => text(sandbox, "cat count")));
      assert.ok(counts.every((count) => Number(count) > 0));
      assert.equal(await stateOf(sandbox.sandboxId), "running");
      const { endAt } = await node.call(getSandbox, { sandboxID: sandbox.sandboxId });
      assert.ok(Date.parse(endAt) - Date.now() > 100_000, "traffic gives it five minutes");
    });

    void test("without auto-resume traffic resumes nothing, and with it a stranger's traffic does not either", async () => {
      const deep = await create();
      await deep.pause();
      await assert.rejects(deep.commands.run("true"));
      assert.equal(await stateOf(deep.sandboxId), "paused");
      const light = await create({ lifecycle: { onTimeout: "pause", autoResume: true } });
      await light.pause();
      const stranger = await fetch(`${node.url}/health`, {
        headers: { "x-svc-sandbox-id": light.sandboxId, "x-svc-target-port": "49983", "x-access-token": "0".repeat(64) },
      });
      assert.equal(stranger.status, 401);
      assert.equal(await stateOf(light.sandboxId), "paused");
    });

    void test("a paused sandbox survives kill -9 of the node, keeps its token, and can be deleted", async () => {
      const [kept, doomed] = await Promise.all([create(), create()]);
      await kept.commands.run("echo kept > kept");
      await Promise.all([kept.pause(), doomed.pause()]);
      await node.kill("SIGKILL");
      await node.start();
      // The SDK object still has the earlier token.
      await Sandbox.connect(kept.sandboxId, connection());
      const again = await Sandbox.connect(kept.sandboxId, connection());
      assert.equal(await text(again, "cat kept"), "kept");
      assert.equal(await again.kill(), true);
      assert.equal(await Sandbox.kill(doomed.sandboxId, connection()), true);
      await assert.rejects(node.call(getSandbox, { sandboxID: doomed.sandboxId }), { name: "SANDBOX_NOT_FOUND" });
    });

    void test("a request that the state does not allow is refused with the state", async () => {
      const { sandboxID } = await node.call(createSandbox, { templateID: "base" });
      const post = async (path: string, body: object) => {
        const response = await fetch(`${node.url}/sandboxes/${sandboxID}/${path}`, {
          method: "POST",
          headers: { "x-api-key": node.apiKey, "content-type": "application/json" },
          body: JSON.stringify(body),
        });
        const answer = response.status === 204 ? {} : await response.json();
        return { status: response.status, ...(answer as { message?: string; error_code?: string }) };
      };
      const running = await post("resume", { timeout: 60 });
      assert.deepEqual([running.status, running.error_code], [409, "SANDBOX_RUNNING"]);
      assert.equal((await post("pause", {})).status, 204);
      for (const path of ["pause", "snapshots", "fork", "timeout"]) {
        const refused = await post(path, path === "timeout" ? { timeout: 60 } : {});
        assert.deepEqual([path, refused.status, refused.error_code], [path, 409, "SANDBOX_PAUSED"]);
        assert.match(refused.message ?? "", /is paused; connect to it or resume it first/);
      }
      assert.equal((await post("resume", { timeout: 60 })).status, 201);
      await Sandbox.kill(sandboxID, connection());
      assert.equal((await post("pause", {})).error_code, "SANDBOX_NOT_FOUND");
    });
  });
}
