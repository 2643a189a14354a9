// Failures of a deployment: a lost etcd, nodes that die or stop, and the fate of their sandboxes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { pauseSandbox, resumeSandbox } from "@svc/contract/lifecycle.ts";
import { nodeControlOperations } from "@svc/contract/node-control.ts";
import { createSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { startDeployment } from "../src/deployment.ts";
import { freeze, thaw } from "../src/freeze.ts";
import { needs } from "../src/needs.ts";
import type { TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

const host = needs("root", "runsc", "envd", "base", "etcd");

async function run(node: TestNode, sandboxID: string, command: string): Promise<string> {
  const sandbox = await Sandbox.connect(sandboxID, { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });
  return (await sandbox.commands.run(command)).stdout.trim();
}
const create = async (node: TestNode) => (await node.call(createSandbox, { templateID: "base", timeout: 3600 })).sandboxID;

void test("while etcd is stopped or gone, creates, commands, pauses and resumes continue; the node registers again when it returns", host, async () => {
  await using deployment = await startDeployment(3);
  const [etcd] = deployment.server.members;
  await using node = await deployment.start();
  const early = await create(node);
  await run(node, early, "echo early > kept");
  for (const [gone, back] of [
    [() => etcd?.freeze(), () => etcd?.thaw()],
    [() => etcd?.kill(), () => etcd?.start()],
  ] as const) {
    const lost = node.log().split("lease in etcd expired").length;
    await gone();
    const late = await create(node);
    assert.equal(await run(node, late, "echo late"), "late");
    await node.call(pauseSandbox, { sandboxID: early });
    await node.call(resumeSandbox, { sandboxID: early, timeout: 3600 });
    assert.equal(await run(node, early, "cat kept"), "early");
    await until("its lease is lost", () => (node.log().split("lease in etcd expired").length > lost ? true : undefined));
    assert.equal(await run(node, await create(node), "echo later"), "later");
    await back();
    await until("it is registered again", async () => ((await deployment.lives()).length === 1 ? true : undefined));
  }
  const record = await deployment.nodeAt(node.url, "still serves", ({ state }) => state === "serving");
  assert.equal(record.generation, 1);
});

void test("a node that is drained or made ready while etcd is gone reports success, and that the deployment was not notified", host, async () => {
  await using deployment = await startDeployment(3);
  const [etcd] = deployment.server.members;
  await using node = await deployment.start();
  await etcd?.kill();
  const set = (status: "draining" | "ready") => node.call(nodeControlOperations.setNodeStatus, { nodeID: "self", status });
  await assert.rejects(set("draining"), { name: "ETCD_UNAVAILABLE", message: /this node drains now .* repeat this when etcd answers/ });
  await assert.rejects(create(node), { message: /drain/ });
  await assert.rejects(set("ready"), { name: "ETCD_UNAVAILABLE", message: /this node takes sandboxes again/ });
  await create(node);
  await etcd?.start();
});

void test("a killed node is declared dead by the others; when it returns, running sandboxes are node_lost and paused ones continue", host, async () => {
  await using deployment = await startDeployment(10, 2);
  await using witness = await deployment.start();
  await using node = await deployment.start();
  const running = await create(node);
  const paused = await create(node);
  await run(node, paused, "echo mine > kept");
  await node.call(pauseSandbox, { sandboxID: paused });
  const { url } = node;
  await node.kill("SIGKILL");
  const dead = await deployment.nodeAt(url, "is dead", ({ state }) => state === "dead");
  assert.match(dead.reason ?? "", /its lease has been over for \d+ s; declared by node-/);
  await node.start();
  await assert.rejects(node.call(getSandbox, { sandboxID: running }), { name: "SANDBOX_NOT_FOUND", message: /node_lost/ });
  await node.call(resumeSandbox, { sandboxID: paused, timeout: 600 });
  assert.equal(await run(node, paused, "cat kept"), "mine");
  const back = await deployment.nodeAt(url, "serves again", ({ state }) => state === "serving");
  assert.deepEqual([back.slot, back.generation], [dead.slot, dead.generation + 1]);
  // Sandboxes that run now belong to this generation, and survive a restart.
  await node.restart("SIGKILL");
  assert.equal(await run(node, paused, "cat kept"), "mine");
  assert.equal((await witness.callForAnswer(getSandbox, { sandboxID: running }).catch((error: Error) => error.name)).toString(), "SANDBOX_NOT_FOUND");
});

void test("a node that was stopped until it was declared dead ends by itself, and one that was shut down is not declared dead", host, async () => {
  await using deployment = await startDeployment(10, 2);
  await using witness = await deployment.start();
  await using node = await deployment.start();
  await using resting = await deployment.start();
  const running = await create(node);
  const kept = await create(resting);
  await resting.kill("SIGTERM");
  await freeze(node.pid);
  const { url, pid } = node;
  await deployment.nodeAt(url, "is dead", ({ state }) => state === "dead");
  thaw(pid);
  await until("it stops", () => (/this node was declared dead.*"stopped"/s.test(node.log()) ? true : undefined));
  await node.kill();
  await node.start();
  await assert.rejects(node.call(getSandbox, { sandboxID: running }), /node_lost/);
  // This node has been away longer than the other one.
  await deployment.nodeAt(resting.url, "rests", ({ state }) => state === "stopped");
  await resting.start();
  assert.equal(await run(resting, kept, "echo on"), "on");
  assert.equal((await fetch(`${witness.url}/health`)).status, 204);
});
