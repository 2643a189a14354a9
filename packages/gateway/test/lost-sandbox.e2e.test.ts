// Sandboxes of a node that was killed: the answers that clients get, before and after the node is declared dead.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { connectSandbox, pauseSandbox } from "@svc/contract/lifecycle.ts";
import { listNodes } from "@svc/contract/nodes.ts";
import { createSandbox, deleteSandbox, getSandbox, listSandboxes } from "@svc/contract/sandbox.ts";
import { DEPLOYMENT_KEY, type Deployment, startDeployment } from "@svc/harness/deployment.ts";
import { startGateway, type TestGateway } from "@svc/harness/gateway.ts";
import { needs } from "@svc/harness/needs.ts";
import type { TestNode } from "@svc/harness/node.ts";
import { until } from "@svc/harness/until.ts";

void describe("sandboxes of a killed node", needs("root", "envd", "base", "bwrap", "etcd", "xxh128sum"), () => {
  let deployment: Deployment;
  let gateway: TestGateway;
  let witness: TestNode;
  let killed: TestNode;
  let nodeID: string;
  let running: string;
  let paused: string;
  let deleted: string;

  const ready = async (at: TestGateway, url: string, status: string) =>
    (await at.call(listNodes, {})).some((node) => node.url === url && node.status === status) ? true : undefined;
  const create = async () => (await killed.call(createSandbox, { templateID: "base", timeout: 3600 })).sandboxID;
  /** Checks the answer on each path that a client has: the operations of the control plane, and traffic. */
  async function isAnswered(at: TestGateway, sandboxID: string, state: string, message: RegExp): Promise<void> {
    const expected = { name: "NODE_LOST", message, details: { node: nodeID, state } };
    await assert.rejects(at.call(getSandbox, { sandboxID }), expected);
    await assert.rejects(at.call(connectSandbox, { sandboxID }), expected);
    const response = await fetch(`${at.url}/health`, { headers: { "x-svc-sandbox-id": sandboxID, "x-svc-target-port": "49983" } });
    const said = (await response.json()) as { message: string };
    assert.deepEqual([response.status, response.headers.get("x-svc-reason")], [502, "node_lost"]);
    assert.deepEqual(said, { sandboxId: sandboxID, node: nodeID, state, error_code: "NODE_LOST", message: said.message, code: 502 });
    assert.match(said.message, message);
    assert.doesNotMatch(said.message, /ECONNREFUSED|was not found|port is not open/);
  }

  before(async () => {
    deployment = await startDeployment(10, 2);
    [witness, killed] = await Promise.all([deployment.start({ runtime: "bubblewrap" }), deployment.start({ runtime: "bubblewrap" })]);
    gateway = await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY });
    for (const { url } of [witness, killed]) await until("it is ready", () => ready(gateway, url, "ready"));
    nodeID = (await deployment.nodeAt(killed.url, "serves", ({ state }) => state === "serving")).nodeID;
    [running, paused, deleted] = [await create(), await create(), await create()];
    for (const sandboxID of [paused, deleted]) await gateway.call(pauseSandbox, { sandboxID, memory: false });
    await killed.kill("SIGKILL");
    await until("the loss is seen", () => ready(gateway, killed.url, "unhealthy"));
  });
  after(async () => {
    await gateway?.[Symbol.asyncDispose]();
    for (const node of [witness, killed]) await node?.[Symbol.asyncDispose]();
    await deployment?.[Symbol.asyncDispose]();
  });

  void test("a paused sandbox that was not exported waits for its node, and a running one continues when the node is back", async () => {
    await isAnswered(gateway, paused, "paused", /is paused on node node-\S+ and was not exported .* waits for that node: .* does not answer \(/);
    await isAnswered(gateway, running, "running", /ran on node node-\S+: node node-\S+ does not answer .* goes on when that node is back/);
    for (const sandboxID of [paused, running]) await assert.rejects(gateway.call(deleteSandbox, { sandboxID }), { name: "NODE_LOST" });
  });

  void test("once the node is declared dead, its running sandboxes are lost and its paused ones still wait", async () => {
    await deployment.nodeAt(killed.url, "is dead", ({ state }) => state === "dead");
    await until("the gateway knows", () => gateway.call(getSandbox, { sandboxID: running }).catch(({ message }) => (/dead/.test(message) ? true : undefined)));
    await isAnswered(gateway, running, "running", /was declared dead, so it is lost/);
    await isAnswered(gateway, paused, "paused", /waits for that node: node node-\S+ was declared dead/);
  });

  void test("a gateway that never heard from the node finds the node by the sandbox's id and names it", async () => {
    await using fresh = await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY });
    await until("it knows the node that stays", () => ready(fresh, witness.url, "ready"));
    await isAnswered(
      fresh,
      paused,
      "unknown",
      /belongs to node node-\S+: .* was declared dead; if it is paused there, it waits for that node; if it ran, it is lost/,
    );
  });

  void test("a delete works once the node is declared dead, and the node removes the sandbox when it is back", async () => {
    await gateway.call(deleteSandbox, { sandboxID: deleted });
    await gateway.call(deleteSandbox, { sandboxID: running });
    for (const sandboxID of [deleted, running]) await assert.rejects(gateway.call(getSandbox, { sandboxID }), { name: "SANDBOX_NOT_FOUND" });
  });

  void test("when the node is back, its paused sandboxes resume", async () => {
    await killed.start();
    await until("it is ready", () => ready(gateway, killed.url, "ready"));
    await gateway.call(connectSandbox, { sandboxID: paused });
    await gateway.call(deleteSandbox, { sandboxID: paused });
    for (const sandboxID of [deleted, running]) await assert.rejects(killed.call(getSandbox, { sandboxID }), { name: /NOT_FOUND|MOVED/ });
    assert.deepEqual(await killed.call(listSandboxes, { state: "running,paused" }), []);
  });
});
