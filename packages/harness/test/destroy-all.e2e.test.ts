// `svc node --destroy-all` ends what a node left, even if parts of the node's own state are gone.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { pauseSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox } from "@svc/contract/sandbox.ts";
import { parentNameOf } from "@svc/sandbox/runtime/cgroup.ts";
import { startDeployment } from "../src/deployment.ts";
import { leftovers } from "../src/leftovers.ts";
import { needs } from "../src/needs.ts";
import { destroyAll, startNode, type TestNode } from "../src/node.ts";
import { ended, startBuild } from "../src/template.ts";
import { until } from "../src/until.ts";

void test(
  "sandboxes whose token seed came by the environment are ended without it, without envd, and no secret is made",
  needs("root", "envd", "base", "runsc"),
  async () => {
    await using node = await startNode({
      runtime: "gvisor",
      env: { SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: "seed-of-the-environment-".repeat(3), SVC_API_KEY: "k".repeat(40) },
    });
    const running = await node.call(createSandbox, { templateID: "base" });
    const paused = await node.call(createSandbox, { templateID: "base" });
    await node.call(pauseSandbox, { sandboxID: paused.sandboxID });
    await node.kill("SIGKILL");
    assert.ok(leftovers(node.home).directories.includes(running.sandboxID));
    const before = readdirSync(join(node.home, "secrets"));
    assert.equal(await destroyAll(node.home), `2 sandboxes were ended on ${realpathSync(node.home)}\n`, "a sentence, and no line of a log");
    assert.deepEqual(leftovers(node.home), { directories: [], netns: [], links: [], cgroups: [], mounts: [], processes: [] });
    assert.deepEqual(readdirSync(join(node.home, "snapshots")), []);
    assert.deepEqual(readdirSync(join(node.home, "secrets")), before);
  },
);

void test(
  "exported sandboxes are ended only with the settings by which their deployment forgets them, too, or are left to other nodes by a flag",
  needs("root", "envd", "base", "bwrap", "etcd"),
  async () => {
    const folder = mkdtempSync(join(tmpdir(), "svc-destroyed-"));
    try {
      await using deployment = await startDeployment();
      const flags = [`--objects.url=file://${folder}`];
      const listed = async () => (await deployment.etcd.list(deployment.keys.sandboxes)).entries.length;
      const manifests = () =>
        readdirSync(folder, { recursive: true, withFileTypes: true }).filter((each) => each.isFile() && /manifests\/sandboxes/.test(each.parentPath));
      const paused = async (node: TestNode) => {
        const { sandboxID } = await node.call(createSandbox, { templateID: "base" });
        await node.call(pauseSandbox, { sandboxID, memory: false });
        await until("it is on record", async () => ((await listed()) === 1 ? true : undefined));
        await node.kill("SIGTERM");
        return sandboxID;
      };
      await using node = await deployment.start({ runtime: "bubblewrap", flags });
      const first = await paused(node);
      const refused = await destroyed(node.home, []);
      assert.equal(refused.code, 1);
      assert.match(
        refused.said,
        new RegExp(`1 paused sandboxes of .*${first}.* its deployment would go on listing them.*cluster.etcd and objects.url is missing.*Nothing was ended`),
      );
      assert.deepEqual([await listed(), manifests().length, readdirSync(join(node.home, "snapshots")).length], [1, 1, 1]);
      const etcd = `--etcd=${deployment.server.endpoints.join(",")}`;
      assert.match((await destroyed(node.home, [etcd])).said, /and objects.url is missing/);
      assert.equal((await destroyed(node.home, [etcd, ...flags])).code, 0);
      assert.deepEqual([await listed(), manifests().length, readdirSync(join(node.home, "snapshots")).length], [0, 0, 0]);

      await node.start();
      await paused(node);
      assert.equal((await destroyed(node.home, ["--leave-exported"])).code, 0);
      assert.deepEqual([await listed(), manifests().length, readdirSync(join(node.home, "snapshots")).length], [1, 1, 0]);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  },
);

/** A person types these flags in a shell without the node's environment. */
async function destroyed(home: string, flags: readonly string[]): Promise<{ code: number | null; said: string }> {
  const main = fileURLToPath(new URL("../../sandbox/src/node/main.ts", import.meta.url));
  const child = spawn(process.execPath, [main, "--destroy-all", `--home=${home}`, ...flags], { stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  child.stderr.on("data", (chunk: Buffer) => {
    said += chunk.toString();
  });
  const [code] = (await once(child, "close")) as [number | null];
  return { code, said };
}

void test(
  "a node that stops when its last sandbox is gone takes its mounts, control groups and networks along; one that is left keeps what it needs",
  needs("root", "envd", "base", "runsc"),
  async () => {
    await using node = await startNode({ runtime: "gvisor" });
    const built = await ended(node, await startBuild(node, "layered", { fromTemplate: "base", steps: [{ type: "RUN", args: ["echo a > /tmp/a"] }] }));
    assert.equal(built.status, "ready");
    const { sandboxID } = await node.call(createSandbox, { templateID: "layered" });
    await node.restart("SIGTERM");
    const home = realpathSync(node.home);
    const images = () =>
      readFileSync("/proc/self/mounts", "utf8")
        .split("\n")
        .filter((line) => line.includes(` ${home}/run/images/`));
    const groups = () => ["", ...readdirSync("/sys/fs/cgroup")].filter((name) => existsSync(join("/sys/fs/cgroup", name, parentNameOf(home))));
    assert.ok(images().length > 0 && groups().length > 0 && leftovers(home).netns.length > 0);
    await node.call(deleteSandbox, { sandboxID });
    await node.kill("SIGTERM");
    assert.deepEqual([images(), groups()], [[], []]);
    assert.deepEqual(leftovers(node.home), { directories: [], netns: [], links: [], cgroups: [], mounts: [], processes: [] });
  },
);
