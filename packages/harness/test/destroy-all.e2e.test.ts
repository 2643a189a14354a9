// `svc node --destroy-all`: ends what a node left, whatever of the node's own is gone by then.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pauseSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { leftovers } from "../src/leftovers.ts";
import { needs } from "../src/needs.ts";
import { destroyAll, startNode } from "../src/node.ts";

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
    await destroyAll(node.home);
    assert.deepEqual(leftovers(node.home), { directories: [], netns: [], links: [], cgroups: [], mounts: [], processes: [] });
    assert.deepEqual(readdirSync(join(node.home, "snapshots")), []);
    assert.deepEqual(readdirSync(join(node.home, "secrets")), before);
  },
);
