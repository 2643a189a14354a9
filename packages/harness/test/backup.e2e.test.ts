// A node's machine is lost with all its disks: what was acknowledged before the backup began is there after a restore.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { listSnapshots } from "@svc/contract/lifecycle.ts";
import { listSandboxes } from "@svc/contract/sandbox.ts";
import { createSecret, listSecrets } from "@svc/contract/secrets.ts";
import { Sandbox, Template, Volume } from "e2b";
import { runBackup } from "../src/backup.ts";
import { needs } from "../src/needs.ts";
import { destroyAll, startNode, type TestNode } from "../src/node.ts";
import { build, connectionTo } from "../src/template.ts";
import { until } from "../src/until.ts";

const text = async (sandbox: Sandbox, command: string) => (await sandbox.commands.run(command)).stdout.trim();

void test(
  "everything but the backup is lost, and sandboxes, snapshots, templates, volumes and secrets are back",
  needs("root", "runsc", "envd", "base"),
  async () => {
    const parent = mkdtempSync(join(tmpdir(), "svc-backup-test-"));
    const [home, target] = [join(parent, "home"), join(parent, "backup")];
    let node: TestNode | undefined;
    try {
      node = await startNode({ runtime: "gvisor", home });
      const at = connectionTo(node);
      process.env["E2B_VOLUME_API_URL"] = node.url;
      await build(node, Template().fromTemplate("base").runCmd("echo built > /srv/built", { user: "root" }), "mine");
      const volume = await Volume.create("data", at);
      const options = { ...at, timeoutMs: 600_000 };
      const worker = await Sandbox.create("mine", { ...options, envs: { COLOUR: "green" }, volumeMounts: { "/data": volume } });
      await worker.commands.run(
        "echo in the volume > /data/file; echo in the sandbox > ~/file; touch ticks; (while sleep 0.05; do echo tick >> ticks; done) > /dev/null 2>&1 & disown",
      );
      await worker.createSnapshot({ name: "ready:v1" });
      const paused = await Sandbox.create("base", options);
      await paused.commands.run("echo paused > file");
      await paused.pause();
      await node.call(createSecret, { name: "token", value: "s3cret" });
      await worker.pause();
      const running = await Sandbox.create("base", options);

      // Clients go on while the backup is made: they take snapshots, delete them, pause and resume.
      const isOver = { now: false };
      const busy = Sandbox.create("base", options).then(async (sandbox) => {
        for (let round = 0; !isOver.now; round++) {
          const snapshot = await sandbox.createSnapshot({ name: `round-${round}` });
          await Sandbox.deleteSnapshot(snapshot.snapshotId, at);
          await sandbox.pause();
          await Sandbox.connect(sandbox.sandboxId, options);
        }
        return sandbox;
      });
      const made = await runBackup(["create", target, `--home=${home}`, "--output=json"]).finally(() => {
        isOver.now = true;
      });
      await busy;
      assert.equal(made.code, 0, made.stderr);
      const {
        paused: counted,
        templates,
        volumes,
        notInHome,
      } = JSON.parse(made.stdout) as { paused: number; templates: number; volumes: number; notInHome: string[] };
      assert.ok(counted >= 2, made.stdout);
      assert.deepEqual([templates, volumes, notInHome], [1, 1, []]);
      assert.deepEqual(existsSync(join(home, "backup")) ? readdirSync(join(home, "backup")) : [], [], "nothing of it is left in the home");
      const again = await runBackup(["create", target, `--home=${home}`]);
      assert.equal(again.code, 1);
      assert.match(again.stderr, /there is a backup in file:.* already/);
      assert.equal((await runBackup(["verify", target])).code, 0);

      const apiKey = node.apiKey;
      await node.kill("SIGKILL");
      await destroyAll(home);
      rmSync(home, { recursive: true });
      const restored = await runBackup(["restore", target, `--home=${home}`]);
      assert.equal(restored.code, 0, restored.stderr);
      assert.match((await runBackup(["restore", target, `--home=${home}`])).stderr, /is not empty.*give another --home/s);
      await node.start();
      assert.equal(node.apiKey, apiKey);
      await until("the running sandbox to be known as lost", async () =>
        (await node?.call(listSandboxes, { state: "running,paused" }))?.some(({ sandboxID }) => sandboxID === running.sandboxId) === false ? true : undefined,
      );
      const worked = await Sandbox.connect(worker.sandboxId, options);
      assert.equal(await text(worked, "cat /srv/built /data/file ~/file; echo $COLOUR"), "built\nin the volume\nin the sandbox\ngreen");
      const ticks = Number(await text(worked, "wc -l < ticks"));
      await until("its processes to go on", async () => (Number(await text(worked, "wc -l < ticks")) > ticks ? true : undefined));
      assert.equal(await text(await Sandbox.connect(paused.sandboxId, options), "cat file"), "paused");
      assert.equal(await text(await Sandbox.create("mine", options), "cat /srv/built"), "built");
      assert.equal(await text(await Sandbox.create("ready:v1", options), "cat ~/file"), "in the sandbox");
      assert.ok((await node.call(listSnapshots, {})).some(({ names }) => names.includes("ready:v1")));
      assert.deepEqual(
        (await node.call(listSecrets, {})).map(({ name }) => name),
        ["token"],
      );
    } finally {
      await node?.[Symbol.asyncDispose]();
      rmSync(parent, { recursive: true, force: true });
    }
  },
);
