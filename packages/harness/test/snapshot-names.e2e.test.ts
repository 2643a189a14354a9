// The meaning of a snapshot's name if several nodes took snapshots under it: the last one to get it, and none once that is deleted.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { OFFERS_PATH, offerAnswer } from "@svc/contract/cluster.ts";
import { createSnapshot, getSnapshot, listSnapshots } from "@svc/contract/lifecycle.ts";
import { listNodes } from "@svc/contract/nodes.ts";
import { createSandbox, deleteSandbox, listSandboxes } from "@svc/contract/sandbox.ts";
import { deleteTemplate, listTemplates, listTemplatesV2 } from "@svc/contract/template.ts";
import { Template } from "e2b";
import { type FedNodes, nodeIDOf, startFedNodes } from "../src/fed-nodes.ts";
import { needs } from "../src/needs.ts";
import type { TestNode } from "../src/node.ts";
import { build } from "../src/template.ts";
import { until } from "../src/until.ts";

void describe("names of snapshots across nodes without object storage", needs("root", "envd", "base", "bwrap", "etcd", "xxh128sum"), () => {
  let fed: FedNodes;
  let first: TestNode;
  let second: TestNode;
  before(async () => {
    fed = await startFedNodes([{ runtime: "bubblewrap" }, { runtime: "bubblewrap" }]);
    [first, second] = fed.nodes;
  });
  after(() => fed?.[Symbol.asyncDispose]());

  async function take(node: TestNode, name: string): Promise<string> {
    const { sandboxID } = await node.call(createSandbox, { templateID: "base", timeout: 600 });
    const { snapshotID } = await node.call(createSnapshot, { sandboxID, name, memory: false });
    await node.call(deleteSandbox, { sandboxID });
    return snapshotID;
  }
  const listed = async (at: Pick<TestNode, "call"> = fed.gateway) => new Map((await at.call(listSnapshots, {})).map((each) => [each.snapshotID, each.names]));
  const isKnown = (snapshotID: string) => until("the gateway knows the snapshot", async () => ((await listed()).has(snapshotID) ? true : undefined));
  /** Restarts the gateway, which then only knows what the live nodes report. */
  async function forgetAll(up: number): Promise<void> {
    await fed.gateway.restart("SIGKILL");
    await until(`${up} of two nodes`, async () => {
      const nodes = await fed.gateway.call(listNodes, {}).catch(() => []);
      return nodes.length === 2 && nodes.filter(({ status }) => status === "ready").length === up ? true : undefined;
    });
  }
  /** Returns the snapshot from which a sandbox with this name starts. */
  const meant = async (asked: string) => {
    const { sandboxID, templateID } = await fed.gateway.call(createSandbox, { templateID: asked, timeout: 600 });
    await fed.gateway.call(deleteSandbox, { sandboxID });
    return templateID;
  };
  const isNotFound = (asked: string) => assert.rejects(meant(asked), { name: "TEMPLATE_NOT_FOUND" });

  void test("a newer snapshot on another node takes the name for good: after its delete the name means nothing", async () => {
    const older = await take(first, "same");
    const newer = await take(second, "same");
    await isKnown(newer);
    assert.equal(await meant("same"), newer);
    const names = await listed();
    assert.deepEqual([names.get(older), names.get(newer)], [[], ["same:default"]]);
    const byName = await fed.gateway.call(listSnapshots, { name: "same" });
    assert.deepEqual(
      byName.map(({ snapshotID }) => snapshotID),
      [newer],
    );
    await until("the older one's node dropped the name", async () => ((await listed(first)).get(older)?.length === 0 ? true : undefined));
    await fed.gateway.call(deleteTemplate, { templateID: "same" });
    await isNotFound("same");
    await assert.rejects(fed.gateway.call(deleteTemplate, { templateID: "same" }), { name: "TEMPLATE_NOT_FOUND" });
    await assert.rejects(fed.gateway.call(getSnapshot, { snapshotID: "same" }), { name: "SNAPSHOT_NOT_FOUND" });
    await Promise.all(fed.nodes.map((node) => node.restart("SIGKILL")));
    await forgetAll(2);
    await isNotFound("same");
    for (const node of fed.nodes) await assert.rejects(node.call(createSandbox, { templateID: "same" }), { name: "TEMPLATE_NOT_FOUND" });
    assert.equal(await meant(older), older);
    // A free name can be given again.
    const third = await take(first, "same");
    await isKnown(third);
    assert.equal(await meant("same"), third);
  });

  void test("it lost the name even if its node was away when the newer one was taken and deleted, and the gateway has no memory of that", async () => {
    const older = await take(first, "away");
    await first.kill("SIGKILL");
    await fed.isUp(first, false);
    const newer = await take(second, "away");
    await isKnown(newer);
    await fed.gateway.call(deleteTemplate, { templateID: "away" });
    await first.start();
    await forgetAll(2);
    await isNotFound("away");
    assert.equal(await meant(older), older);
    await until("its node dropped the name", async () => ((await listed(first)).get(older)?.length === 0 ? true : undefined));
  });

  void test("an imported snapshot gets its name only if it is unused on every node, and then has it everywhere", async () => {
    const headers = { "x-api-key": first.apiKey };
    const knows = (snapshotID: string) =>
      until("the first node knows whose the name is", async () => {
        const { named } = offerAnswer.parse(await (await fetch(`${first.url}${OFFERS_PATH}?asked=brought`, { headers })).json());
        return named?.snapshotID === snapshotID ? true : undefined;
      });
    const older = await take(first, "brought");
    const file = await (await fetch(`${first.url}/snapshots/${older}/export`, { headers })).arrayBuffer();
    const bring = async () => {
      const response = await fetch(`${first.url}/snapshots/import`, { method: "POST", headers, body: file });
      assert.equal(response.ok, true, await response.text());
    };
    const newer = await take(second, "brought");
    await knows(newer);
    await first.call(deleteTemplate, { templateID: older });
    await bring();
    assert.deepEqual((await listed(first)).get(older), []);
    await first.call(deleteTemplate, { templateID: older });
    await fed.gateway.call(deleteTemplate, { templateID: "brought" });
    await knows("");
    await bring();
    assert.deepEqual((await listed(first)).get(older), ["brought:default"]);
    await isKnown(older);
    assert.equal(await meant("brought"), older);
  });

  void test("while the node that decides about a name is away, a create says so, with the id that works", async () => {
    const snapshotID = await take(first, "decided:v1");
    await isKnown(snapshotID);
    await fed.setStatus(first, "draining");
    assert.equal(await meant("decided:v1"), snapshotID);
    await fed.setStatus(first, "ready");
    await first.kill("SIGKILL");
    await fed.isUp(first, false);
    const says = new RegExp(`snapshot 'decided:v1' .*node ${nodeIDOf(first)}, which decides about .*${nodeIDOf(second)} has a copy.*svc start ${snapshotID}`);
    await assert.rejects(meant("decided:v1"), { name: "NODE_LOST", message: says });
    assert.equal(await meant(snapshotID), snapshotID);
    // A gateway that knows the name only from the other node reports the same.
    await forgetAll(1);
    await assert.rejects(meant("decided:v1"), { name: "NODE_LOST", message: says });
    await first.start();
    await fed.isUp(first);
    assert.equal(await meant("decided:v1"), snapshotID);
  });

  void test("a sandbox shows the same template on every node: the snapshot's name, however it was requested", async () => {
    const snapshotID = await take(first, "shown:v1");
    await isKnown(snapshotID);
    const ask = async (asked: string) => (await fed.gateway.call(createSandbox, { templateID: asked, timeout: 600 })).sandboxID;
    const ids = [await ask("shown:v1"), await ask(snapshotID)];
    await fed.setStatus(first, "draining");
    ids.push(await ask("shown:v1"), await ask(snapshotID));
    const all = (await fed.gateway.call(listSandboxes, {})).filter(({ sandboxID }) => ids.includes(sandboxID));
    assert.deepEqual(
      all.map(({ alias, templateID }) => [alias, templateID]),
      Array(4).fill(["shown:v1", snapshotID]),
    );
    for (const sandboxID of ids) await fed.gateway.call(deleteSandbox, { sandboxID });
    await fed.setStatus(first, "ready");
  });

  void test("a template's starts are counted across all nodes, in both lists", async () => {
    const count = async (operation: typeof listTemplates | typeof listTemplatesV2, name: string) =>
      (await fed.gateway.call(operation, {})).find(({ names }) => names.includes(name))?.spawnCount;
    await build(first, Template().fromTemplate("base").runCmd("echo one > /tmp/version"), "counted");
    await until("the gateway knows it", async () => ((await count(listTemplates, "counted")) === undefined ? undefined : true));
    const before = (await count(listTemplatesV2, "base")) ?? assert.fail();
    for (const name of ["counted", "base"]) {
      await meant(name);
      await fed.setStatus(first, "draining");
      await meant(name);
      await meant(name);
      await fed.setStatus(first, "ready");
    }
    for (const operation of [listTemplates, listTemplatesV2]) {
      assert.equal(await count(operation, "counted"), 3);
      assert.equal(await count(operation, "base"), before + 3);
    }
  });
});
