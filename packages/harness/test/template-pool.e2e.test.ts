// Warm sandboxes of a template that is rebuilt.
import assert from "node:assert/strict";
import { test } from "node:test";
import { deleteTemplate } from "@svc/contract/template.ts";
import { Sandbox, Template } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { build, connectionTo } from "../src/template.ts";
import { until } from "../src/until.ts";

void test("as many refills as the setting allows run at once, from the start", needs("root", "runsc", "envd", "base"), async () => {
  await using node = await startNode({ runtime: "gvisor", flags: ["--node.log_level=debug", "--pool.templates=base=4", "--pool.refill_concurrency=4"] });
  const stages = () => [...node.log().matchAll(/"stage":"(network|envd)"/g)].map((match) => match[1]);
  await until("the first sandbox waits for its envd", () => (stages().includes("envd") ? true : undefined));
  assert.equal(stages().indexOf("envd"), 4, "starts under way when the first one had come that far");
});

void test("the pool starts no more sandboxes of a deleted template", needs("root", "runsc", "envd", "base"), async () => {
  await using node = await startNode({ runtime: "gvisor", flags: ["--pool.size=2", "--pool.refill_concurrency=2"] });
  await build(node, Template().fromTemplate("base").runCmd("true > /tmp/made"), "shortlived");
  const first = await Sandbox.create("shortlived", connectionTo(node));
  const metrics = async () => await (await fetch(`${node.url}/metrics`)).text();
  const inState = async (state: string) =>
    Number(new RegExp(`^svc_node_sandboxes\\{[^}]*state="${state}"[^}]*\\} (\\d+)`, "m").exec(await metrics())?.[1] ?? 0);
  await until("a warm one", async () => ((await inState("warm")) > 0 ? true : undefined));
  await first.kill();
  await node.call(deleteTemplate, { templateID: "shortlived" });
  assert.match(await metrics(), /svc_node_pool_sandboxes/);
  assert.doesNotMatch(await metrics(), /template="shortlived"/, "the pool still keeps some ready");
  await until("none is left", async () => ((await inState("warm")) + (await inState("creating")) === 0 ? true : undefined));
});

void test("a warm sandbox belongs to the requested build, by tag and after a new build", needs("root", "runsc", "envd", "base"), async () => {
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
