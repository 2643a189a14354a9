// A node that is drained, made ready again, removed, and declared dead by an operator.
import assert from "node:assert/strict";
import { test } from "node:test";
import { resumeSandbox } from "@svc/contract/lifecycle.ts";
import { getNodeDrain, removeNode, setNodeStatus } from "@svc/contract/node-control.ts";
import { createSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { startDeployment } from "../src/deployment.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

const host = needs("root", "runsc", "envd", "base", "etcd");

async function run(node: TestNode, sandboxID: string, command: string): Promise<string> {
  const sandbox = await Sandbox.connect(sandboxID, { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });
  return (await sandbox.commands.run(command)).stdout.trim();
}
const create = async (node: TestNode) => (await node.call(createSandbox, { templateID: "base", timeout: 3600 })).sandboxID;
const drained = (node: TestNode) =>
  until("nothing runs", async () => {
    const { isDraining, running, failed } = await node.call(getNodeDrain, { nodeID: "self" });
    assert.deepEqual(failed, []);
    return isDraining && running === 0 ? true : undefined;
  });

void test("a drained node pauses all running sandboxes and accepts no new ones, also after a stop or kill, until it is made ready again", host, async () => {
  await using node = await startNode({ runtime: "gvisor" });
  const [one, two] = [await create(node), await create(node)];
  await run(node, one, "echo mine > kept");
  await node.call(setNodeStatus, { nodeID: "self", status: "draining" });
  await drained(node);
  for (const sandboxID of [one, two]) assert.equal((await node.call(getSandbox, { sandboxID })).state, "paused");
  const refusal = { name: "CAPACITY_EXHAUSTED", message: /node node-\w+ is draining/ } as const;
  await assert.rejects(create(node), refusal);
  await node.restart("SIGTERM");
  await node.restart("SIGKILL");
  await assert.rejects(create(node), refusal);
  await assert.rejects(node.call(resumeSandbox, { sandboxID: one, timeout: 60 }), refusal);
  // The node remembers across the restart which sandboxes the drain paused.
  assert.deepEqual((await node.call(getNodeDrain, { nodeID: "self" })).pausedByDrain.sort(), [one, two].sort());
  await node.call(setNodeStatus, { nodeID: "self", status: "ready" });
  assert.deepEqual((await node.call(getNodeDrain, { nodeID: "self" })).pausedByDrain, []);
  await node.call(resumeSandbox, { sandboxID: one, timeout: 3600 });
  assert.equal(await run(node, one, "cat kept"), "mine");
  await assert.rejects(node.call(removeNode, { nodeID: "self", dead: false }), { name: "INVALID_REQUEST", message: /runs alone: there is no deployment/ });
  await assert.rejects(node.call(setNodeStatus, { nodeID: "another", status: "draining" }), { name: "NODE_NOT_FOUND", message: /which runs alone/ });
});

void test(
  "a node is drained and removed through another one of its deployment, has its slot and its paused sandboxes when it comes back, and says when every node drains",
  host,
  async () => {
    await using deployment = await startDeployment();
    await using other = await deployment.start();
    await using node = await deployment.start();
    const { nodeID, slot } = await deployment.nodeAt(node.url, "serves", ({ state }) => state === "serving");
    const sandboxID = await create(node);
    await run(node, sandboxID, "echo mine > kept");
    await other.call(setNodeStatus, { nodeID, status: "draining" });
    await drained(node);
    const resumed = () => node.call(resumeSandbox, { sandboxID, timeout: 60 });
    await assert.rejects(resumed, { name: "CAPACITY_EXHAUSTED", message: new RegExp(`^node ${nodeID} is draining: .*\`svc nodes undrain ${nodeID}\``) });
    await other.call(setNodeStatus, { nodeID: "self", status: "draining" });
    await assert.rejects(resumed, { name: "CAPACITY_EXHAUSTED", message: /^every node of the deployment that serves drains.*`svc nodes undrain NODE`/ });
    await other.call(setNodeStatus, { nodeID: "self", status: "ready" });
    await assert.rejects(other.call(removeNode, { nodeID, dead: false }), { name: "INVALID_REQUEST", message: /serves at http.*drain it and stop it first/ });
    await assert.rejects(other.call(removeNode, { nodeID: "node-unknown", dead: false }), { name: "NODE_NOT_FOUND" });
    await node.kill("SIGTERM");
    await other.call(removeNode, { nodeID, dead: false });
    assert.deepEqual(
      (await deployment.nodes()).map(({ url }) => url),
      [other.url],
    );
    await node.start();
    const back = await deployment.nodeAt(node.url, "is back", ({ state }) => state === "serving");
    assert.deepEqual([back.slot, back.isDraining], [slot, false]);
    await node.call(resumeSandbox, { sandboxID, timeout: 600 });
    assert.equal(await run(node, sandboxID, "cat kept"), "mine");
  },
);

void test("a node that an operator removes as dead stops, and its running sandboxes are node_lost when it returns", host, async () => {
  await using deployment = await startDeployment();
  await using other = await deployment.start();
  await using node = await deployment.start();
  const { nodeID } = await deployment.nodeAt(node.url, "serves", ({ state }) => state === "serving");
  const sandboxID = await create(node);
  await other.call(removeNode, { nodeID, dead: true });
  await until("it stops", () => (/this node was removed from the deployment.*"stopped"/s.test(node.log()) ? true : undefined));
  await node.kill();
  await node.start();
  await assert.rejects(node.call(getSandbox, { sandboxID }), { name: "SANDBOX_NOT_FOUND", message: /node_lost/ });
  assert.equal((await deployment.nodes()).length, 2);
});
