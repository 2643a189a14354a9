// Snapshots and templates of one node that start on another, without object storage: fetched once, and named where they were created.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { getSnapshot, listSnapshots } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox } from "@svc/contract/sandbox.ts";
import { listTemplates } from "@svc/contract/template.ts";
import { Template } from "e2b";
import { type FedNodes, fetchedBytes, nodeIDOf, startFedNodes } from "../src/fed-nodes.ts";
import { needs } from "../src/needs.ts";
import type { TestNode } from "../src/node.ts";
import { build } from "../src/template.ts";

void describe("data of one of two nodes, without object storage", needs("root", "runsc", "envd", "base", "etcd", "xxh128sum"), () => {
  let fed: FedNodes;
  let holder: TestNode;
  let other: TestNode;
  before(async () => {
    fed = await startFedNodes([{ flags: ["--sandbox.max_sandboxes=1"] }, {}]);
    [holder, other] = fed.nodes;
  });
  after(() => fed?.[Symbol.asyncDispose]());

  void test("a snapshot starts where it was taken; on the other node, with its memory, once that one is full; and is fetched once", async () => {
    const command =
      "head -c 60000000 /dev/urandom > /home/user/noise; (sh -c 'while sleep 0.1; do date > /tmp/now; done' &) ; cat /proc/sys/kernel/random/boot_id > /tmp/was";
    const snapshotID = await fed.snapshotOn(holder, command, "ready");
    const { sandboxID } = await fed.gateway.call(createSandbox, { templateID: "ready" });
    assert.deepEqual(fetchedBytes(other), []);
    const began = performance.now();
    const shows = "cat /tmp/was; stat -c %s noise; pgrep -fc 'while sleep'";
    const first = await fed.shown("ready", shows);
    const firstMs = performance.now() - began;
    assert.match(first, /^[0-9a-f-]{36}\n60000000\n[1-9]/);
    const [moved = 0] = fetchedBytes(other);
    assert.ok(moved >= 60_000_000, `${moved} bytes`);
    const again = await Promise.all([fed.shown(snapshotID, shows), fed.shown("ready:default", shows)]);
    assert.ok(again.every((each) => each.startsWith(first.slice(0, 36))));
    assert.deepEqual(fetchedBytes(other), [moved], "the second start moves no byte");
    process.stderr.write(`${moved} bytes fetched and started in ${Math.round(firstMs)} ms\n`);
    await fed.gateway.call(deleteSandbox, { sandboxID });
  });

  void test("a snapshot is listed once, under its name, whichever nodes have it", async () => {
    const listed = await fed.gateway.call(listSnapshots, {});
    assert.deepEqual(
      listed.map(({ names, originNodeID }) => [names, originNodeID]),
      [[["ready:default"], undefined]],
    );
    const { snapshotID } = listed[0] ?? assert.fail();
    const [copy] = await other.call(listSnapshots, {});
    assert.deepEqual([copy?.snapshotID, copy?.names, copy?.originNodeID], [snapshotID, [], nodeIDOf(holder)]);
    for (const asked of ["ready", snapshotID]) assert.deepEqual((await fed.gateway.call(getSnapshot, { snapshotID: asked })).names, ["ready:default"]);
  });

  void test("a name that moved refers to the newer snapshot on every node, also where the older one was fetched", async () => {
    await fed.snapshotOn(holder, "echo second > /tmp/which", "ready");
    const { sandboxID } = await fed.gateway.call(createSandbox, { templateID: "ready" });
    for (const asked of ["ready", "ready:default"]) assert.equal(await fed.shown(asked, "cat /tmp/which"), "second");
    await fed.gateway.call(deleteSandbox, { sandboxID });
    // A snapshot taken on the other node is now the newest, wherever it starts.
    await fed.snapshotOn(other, "echo third > /tmp/which", "ready");
    await fed.setStatus(other, "draining");
    assert.equal(await fed.shown("ready", "cat /tmp/which"), "third");
    await fed.setStatus(other, "ready");
  });

  void test("a template is built once, and starts on the other node with the memory that its start command left", async () => {
    const site = Template()
      .fromTemplate("base")
      .runCmd("echo one > /tmp/version")
      .setStartCmd("date +%s%N > /tmp/started; sleep 100000", "test -s /tmp/started");
    await build(holder, site, "site");
    const started = await fed.shown("site", "cat /tmp/started");
    await fed.setStatus(holder, "draining");
    const before = fetchedBytes(other).length;
    assert.deepEqual(await Promise.all([fed.shown("site", "cat /tmp/started"), fed.shown("site:default", "cat /tmp/started")]), [started, started]);
    assert.equal(await fed.shown("site", "cat /tmp/started"), started);
    assert.equal(fetchedBytes(other).length, before + 1);
    await fed.setStatus(holder, "ready");
    assert.equal((await fed.gateway.call(listTemplates, {})).filter(({ names }) => names.includes("site")).length, 1);
    await build(holder, Template().fromTemplate("base").runCmd("echo two > /tmp/version"), "site");
    await fed.setStatus(holder, "draining");
    assert.equal(await fed.shown("site", "cat /tmp/version"), "two");
    await fed.setStatus(holder, "ready");
  });
});
