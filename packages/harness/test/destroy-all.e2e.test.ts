// `svc node --destroy-all` ends what a node left, even if parts of the node's own state are gone.
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pauseSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox } from "@svc/contract/sandbox.ts";
import { parentNameOf } from "@svc/sandbox/runtime/cgroup.ts";
import { leftovers } from "../src/leftovers.ts";
import { needs } from "../src/needs.ts";
import { destroyAll, startNode } from "../src/node.ts";
import { ended, startBuild } from "../src/template.ts";

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
