// Fetches whose source or target node is killed, copies that are deleted, and data that only a lost node has.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { listSnapshots } from "@svc/contract/lifecycle.ts";
import { removeNode } from "@svc/contract/node-control.ts";
import { listNodes } from "@svc/contract/nodes.ts";
import { createSandbox, deleteSandbox } from "@svc/contract/sandbox.ts";
import { deleteTemplate } from "@svc/contract/template.ts";
import { Template } from "e2b";
import { checkpoints, coming, type FedNodes, nodeIDOf, startFedNodes } from "../src/fed-nodes.ts";
import { needs } from "../src/needs.ts";
import type { TestNode } from "../src/node.ts";
import { build } from "../src/template.ts";
import { until } from "../src/until.ts";

const NOISE = "head -c 30000000 /dev/urandom > /home/user/noise";
const SLOWLY = { flags: ["--objects.bandwidth_mb_per_second=4"] };

void describe("a node that fetches, or that others fetch from", needs("root", "runsc", "envd", "base", "etcd", "xxh128sum"), () => {
  let fed: FedNodes;
  let holder: TestNode;
  let other: TestNode;
  before(async () => {
    fed = await startFedNodes();
    [holder, other] = fed.nodes;
  });
  after(() => fed?.[Symbol.asyncDispose]());

  const listedIDs = async (at: Pick<TestNode, "call">) => (await at.call(listSnapshots, {})).map(({ snapshotID }) => snapshotID).sort();

  void test("killed during a fetch has all of a snapshot afterwards or nothing, and fetches it again", async () => {
    const snapshotID = await fed.snapshotOn(holder, NOISE, "big");
    await other.restart("SIGKILL", SLOWLY);
    await fed.isUp(other);
    const create = other.call(createSandbox, { templateID: snapshotID }).catch((error: Error) => error);
    await until("it is on its way", () => (coming(other).length > 0 ? true : undefined));
    await other.kill("SIGKILL");
    assert.ok((await create) instanceof Error);
    await other.start(SLOWLY);
    assert.deepEqual([coming(other), checkpoints(other), await listedIDs(other)], [[], [], []]);

    // If the source node goes away, the partial data is removed, and the reason names that node.
    const second = other.call(createSandbox, { templateID: snapshotID }).catch((error: Error) => error);
    await until("it is on its way again", () => (coming(other).length > 0 ? true : undefined));
    await holder.kill("SIGKILL");
    const error = await second;
    assert.ok(error instanceof Error);
    assert.match(error.message, new RegExp(`'${snapshotID}' could not be fetched from node ${nodeIDOf(holder)}`));
    assert.deepEqual([coming(other), checkpoints(other), await listedIDs(other)], [[], [], []]);
    await fed.isUp(holder, false);
    for (const asked of [snapshotID, "big"])
      await assert.rejects(fed.gateway.call(createSandbox, { templateID: asked }), {
        name: "NODE_LOST",
        message: new RegExp(`node ${nodeIDOf(holder)}.*there is no object storage`),
      });
    await holder.start();
    await other.restart("SIGKILL", { flags: ["--objects.bandwidth_mb_per_second=0"] });
    for (const node of fed.nodes) await fed.isUp(node);
    await fed.setStatus(holder, "draining");
    assert.equal(await fed.shown("big", "stat -c %s noise"), "30000000");
    await fed.setStatus(holder, "ready");
  });

  void test("has its copies deleted with a snapshot: at once if it answers, otherwise when it returns", async () => {
    const [big = ""] = await listedIDs(fed.gateway);
    assert.deepEqual(await listedIDs(other), [big]);
    const small = await fed.snapshotOn(holder, "echo small > /tmp/small");
    const { templateID, buildID } = await build(holder, Template().fromTemplate("base").runCmd("echo site > /tmp/site"), "site");
    for (const asked of [small, "site"])
      await other.call(createSandbox, { templateID: asked }).then(({ sandboxID }) => other.call(deleteSandbox, { sandboxID }));
    await until("the gateway knows", async () => ((await listedIDs(fed.gateway)).length === 2 ? true : undefined));
    await fed.gateway.call(deleteTemplate, { templateID: "big" });
    assert.deepEqual([await listedIDs(holder), await listedIDs(other)], [[small], [small]]);
    for (const entry of [fed.gateway, holder, other]) await assert.rejects(entry.call(createSandbox, { templateID: big }), { name: "TEMPLATE_NOT_FOUND" });

    await other.kill("SIGKILL");
    await fed.isUp(other, false);
    for (const asked of [small, "site"]) await fed.gateway.call(deleteTemplate, { templateID: asked });
    await other.start();
    await fed.isUp(other);
    assert.deepEqual(await listedIDs(fed.gateway), []);
    for (const asked of [small, "site", templateID])
      await assert.rejects(fed.gateway.call(createSandbox, { templateID: asked }), { name: "TEMPLATE_NOT_FOUND" });
    await until("its copy of the template is gone", () =>
      other.call(createSandbox, { templateID: buildID }).then(
        ({ sandboxID }) => other.call(deleteSandbox, { sandboxID }),
        (error: Error) => error.name === "TEMPLATE_NOT_FOUND" || undefined,
      ),
    );
    await until("its copy is gone", async () => ((await listedIDs(other)).length === 0 && checkpoints(other).length === 0 ? true : undefined));
  });

  void test("keeps using its copy by id while the node that took it is lost; names and deletes wait for that node", async () => {
    const snapshotID = await fed.snapshotOn(holder, "echo kept > /tmp/kept", "kept");
    await other.call(createSandbox, { templateID: "kept" }).then(({ sandboxID }) => other.call(deleteSandbox, { sandboxID }));
    await until("the gateway knows", async () => ((await listedIDs(fed.gateway)).includes(snapshotID) ? true : undefined));
    await holder.kill("SIGKILL");
    await fed.isUp(holder, false);
    assert.equal(await fed.shown(snapshotID, "cat /tmp/kept"), "kept");
    assert.deepEqual(await listedIDs(fed.gateway), [snapshotID]);
    const lost = { name: "NODE_LOST", message: new RegExp(nodeIDOf(holder)) };
    await assert.rejects(fed.gateway.call(createSandbox, { templateID: "kept" }), lost);
    await assert.rejects(fed.gateway.call(deleteTemplate, { templateID: snapshotID }), lost);
    await holder.start();
    await fed.isUp(holder);
    assert.equal(await fed.shown("kept", "cat /tmp/kept"), "kept");
    await fed.gateway.call(deleteTemplate, { templateID: "kept" });
    assert.deepEqual([await listedIDs(fed.gateway), await listedIDs(holder), await listedIDs(other)], [[], [], []]);
  });

  void test("can delete its copy once the node that took it was removed from the deployment", async () => {
    const snapshotID = await fed.snapshotOn(holder, "echo left > /tmp/left", "left");
    await other.call(createSandbox, { templateID: "left" }).then(({ sandboxID }) => other.call(deleteSandbox, { sandboxID }));
    await holder.kill("SIGKILL");
    await fed.isUp(holder, false);
    await fed.gateway.call(removeNode, { nodeID: nodeIDOf(holder), dead: true });
    await until("the gateway knows", async () => ((await fed.gateway.call(listNodes, {})).length === 1 ? true : undefined));
    assert.equal(await fed.shown(snapshotID, "cat /tmp/left"), "left");
    await fed.gateway.call(deleteTemplate, { templateID: snapshotID });
    assert.deepEqual([await listedIDs(fed.gateway), await listedIDs(other)], [[], []]);
    await assert.rejects(fed.gateway.call(createSandbox, { templateID: snapshotID }), { name: "TEMPLATE_NOT_FOUND" });
  });
});
