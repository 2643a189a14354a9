// Nodes and gateways of two versions: data that one of them does not know is ignored and never lost.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, test } from "node:test";
import { CLUSTER_VERSION, type ClusterFrame, STREAM_PATH } from "@svc/contract/cluster.ts";
import { nodeRecord } from "@svc/contract/cluster-records.ts";
import { nodeControlOperations } from "@svc/contract/node-control.ts";
import { listNodes } from "@svc/contract/nodes.ts";
import { createSandbox, deleteSandbox } from "@svc/contract/sandbox.ts";
import { DEPLOYMENT_KEY, startDeployment } from "@svc/harness/deployment.ts";
import { startGateway } from "@svc/harness/gateway.ts";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { Link } from "../src/members/link.ts";

const state = {
  kind: "state",
  version: CLUSTER_VERSION + 1,
  node: {
    nodeID: "node-later",
    generation: 1,
    version: "later",
    fingerprints: { apiKey: "a", seed: "b", another: "c" },
    cpuClass: "x86-64-v3",
    labels: {},
    maxSandboxes: 1,
    runtime: "gvisor",
    machine: { cpuCount: 1, cpuArchitecture: "", cpuFamily: "", cpuModel: "", cpuModelName: "" },
  },
  load: {
    starting: 0,
    waiting: 0,
    pools: {},
    memory: { totalBytes: 1, availableBytes: 1, reservedBytes: 0, usedBytes: 0 },
    allocatedCPU: 0,
    cpuPercent: 0,
    disk: { totalBytes: 1, usedBytes: 0 },
    isDraining: false,
    temperature: 40,
  },
  sandboxes: { running: ["i1"], paused: [], gone: [], dreaming: ["i2"] },
  templates: [],
  futures: [1],
};

void test("a gateway reads the stream of a later node and ignores unknown fields and kinds of lines", async () => {
  let asked = "";
  const server = createServer((request, response) => {
    asked = request.url ?? "";
    response.write(`${JSON.stringify(state)}\n${JSON.stringify({ kind: "prophecy", of: "rain" })}\n`);
    response.write(`${JSON.stringify({ kind: "change", sandboxes: { running: [], paused: ["i1"], gone: [] } })}\n`);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const frames: ClusterFrame[] = [];
  const downs: string[] = [];
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const link = new Link({
    url,
    apiKey: "k",
    domain: () => "localhost",
    silenceMs: 20_000,
    onFrame: (frame) => frames.push(frame),
    onDown: (reason) => downs.push(reason),
  });
  link.open();
  await until("both frames", () => (frames.length === 2 ? true : undefined));
  link.close();
  server.closeAllConnections();
  server.close();
  assert.match(asked, new RegExp(`version=${CLUSTER_VERSION}\\b`));
  assert.deepEqual(
    frames.map(({ kind }) => kind),
    ["state", "change"],
  );
  assert.deepEqual(frames[0]?.kind === "state" && frames[0].sandboxes, { running: ["i1"], paused: [], gone: [], leaving: [], owned: {} });
  assert.deepEqual(downs, []);
});

void describe("a deployment of two versions", needs("root", "envd", "base", "runc", "etcd"), () => {
  void test("a node serves a later gateway in its own version, and keeps unknown fields that a later node wrote to etcd", async () => {
    await using deployment = await startDeployment();
    await using node = await deployment.start({ runtime: "runc" });
    const { nodeID } = await deployment.nodeAt(node.url, "serves", ({ state }) => state === "serving");
    const response = await fetch(`${node.url}${STREAM_PATH}?version=${CLUSTER_VERSION + 7}&domain=localhost&colour=blue`, {
      headers: { "x-api-key": node.apiKey },
    });
    const reader = (response.body ?? assert.fail()).getReader();
    const first = JSON.parse(new TextDecoder().decode((await reader.read()).value).split("\n")[0] ?? "") as { version: number };
    await reader.cancel();
    assert.equal(first.version, CLUSTER_VERSION);

    const key = deployment.keys.node(nodeID);
    const kept = (await deployment.etcd.get(key)) ?? assert.fail();
    await deployment.etcd.put(key, JSON.stringify({ ...JSON.parse(kept.value), rack: "b7" }));
    await until("it has seen that", () =>
      node.call(nodeControlOperations.setNodeStatus, { nodeID: "self", status: "draining" }).then(
        () => true,
        () => undefined,
      ),
    );
    await node.restart("SIGTERM");
    await deployment.nodeAt(node.url, "serves again", ({ state, generation }) => state === "serving" && generation === 2);
    const after = nodeRecord.parse(JSON.parse((await deployment.etcd.get(key))?.value ?? ""));
    assert.deepEqual([after["rack"], after.isDraining], ["b7", true]);
    await node.call(nodeControlOperations.setNodeStatus, { nodeID: "self", status: "ready" });

    // A record in a later format is ignored, and the readable ones still apply.
    await deployment.etcd.put(deployment.keys.node("node-later"), JSON.stringify({ version: 2, name: "node-later" }));
    await deployment.etcd.put(deployment.keys.sandbox("i0123456789abcdefghi"), JSON.stringify({ version: 2 }));
    await node.restart("SIGKILL");
    await using gateway = await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY });
    await until("the node", async () => ((await gateway.call(listNodes, {})).some(({ status }) => status === "ready") ? true : undefined));
    const { sandboxID } = await gateway.call(createSandbox, { templateID: "base" });
    await gateway.call(deleteSandbox, { sandboxID });
    assert.match(gateway.log(), /a node's record in etcd cannot be read/);
  });
});
