// An etcd that comes back empty: what nodes and gateways say, which is true, and that nodes fill it again by themselves.
import assert from "node:assert/strict";
import { test } from "node:test";
import { listNodes } from "@svc/contract/nodes.ts";
import { createSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { DEPLOYMENT_KEY, startDeployment } from "../src/deployment.ts";
import { startGateway } from "../src/gateway.ts";
import { needs } from "../src/needs.ts";
import { until } from "../src/until.ts";

const given = needs("root", "envd", "base", "bwrap", "etcd");

void test("when etcd is wiped, nodes and gateways say so and not that a node was declared dead, and nodes rejoin by themselves", given, async () => {
  await using deployment = await startDeployment(3);
  await using node = await deployment.start({ runtime: "bubblewrap" });
  await using gateway = await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY });
  const isReady = async () => ((await gateway.call(listNodes, {})).some(({ status }) => status === "ready") ? true : undefined);
  const emptied = async () => /^svc_gateway_etcd_emptied (\d)$/m.exec(await (await fetch(`${gateway.metricsURL}/metrics`)).text())?.[1];
  await until("the gateway has the node", isReady);
  const before = await deployment.nodeAt(node.url, "serves", ({ state }) => state === "serving");
  const { sandboxID } = await node.call(createSandbox, { templateID: "base", timeout: 3600 });
  assert.equal(await emptied(), "0");

  await deployment.server.members[0]?.wipe();
  const words = /etcd has lost the records of this deployment: this node restarts by itself and writes its own again; its sandboxes go on/;
  await until("the node says so", () => (words.test(node.log()) ? true : undefined));
  assert.doesNotMatch(node.log(), /this node was declared dead|was removed from the deployment/);
  await until("the gateway has seen it", () => (/etcd has a record of the deployment again/.test(gateway.log()) ? true : undefined));
  assert.match(gateway.log(), /etcd has lost the records of this deployment: it was emptied or replaced/);

  await until("the node is ready again", () => (node.log().split('"msg":"ready"').length === 3 ? true : undefined));
  assert.equal(node.hasEnded, false);
  await until("the gateway has the node again", isReady);
  const after = await deployment.nodeAt(node.url, "serves", ({ state }) => state === "serving");
  assert.deepEqual([after.nodeID, after.slot], [before.nodeID, before.slot]);
  assert.equal((await gateway.call(getSandbox, { sandboxID })).state, "running");
  await until("the gateway counts none", async () => ((await emptied()) === "0" ? true : undefined));
});
