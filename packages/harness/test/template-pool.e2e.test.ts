// Warm sandboxes of a template that is built anew.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Sandbox, Template } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { build, connectionTo } from "../src/template.ts";
import { until } from "../src/until.ts";

void test("a warm sandbox is one of the build that was asked for, by tag and after a new build", needs("root", "runsc", "envd", "base"), async () => {
  await using node = await startNode({ runtime: "gvisor", flags: ["--pool.size=1"] });
  const version = (text: string) => Template().fromTemplate("base").runCmd(`echo ${text} > /tmp/version`);
  const shown = async (name: string) => {
    const sandbox = await Sandbox.create(name, connectionTo(node));
    try {
      return (await sandbox.commands.run("cat /tmp/version")).stdout.trim();
    } finally {
      await sandbox.kill();
    }
  };
  const warm = (count: number) =>
    until("a warm sandbox", async () => {
      const metrics = await (await fetch(`${node.url}/metrics`)).text();
      const ready = [...metrics.matchAll(/^svc_node_pool_sandboxes\{[^}]*template="pooled[^}]*\} (\d+)/gm)].reduce((sum, match) => sum + Number(match[1]), 0);
      return ready >= count ? true : undefined;
    });
  await build(node, version("one"), "pooled", { tags: ["v1"] });
  await build(node, version("two"), "pooled:v2");
  assert.equal(await shown("pooled:v1"), "one");
  await warm(1);
  assert.equal(await shown("pooled:v2"), "two");
  await warm(1);
  await build(node, version("three"), "pooled:v2");
  assert.deepEqual([await shown("pooled:v2"), await shown("pooled:v1")], ["three", "one"]);
});
