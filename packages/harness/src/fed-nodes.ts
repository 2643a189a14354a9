// Two nodes of one deployment in etcd, without object storage, behind a gateway: each fetches the other's data from it.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createSnapshot } from "@svc/contract/lifecycle.ts";
import { setNodeStatus } from "@svc/contract/node-control.ts";
import { getNode, listNodes } from "@svc/contract/nodes.ts";
import { deleteSandbox } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { DEPLOYMENT_KEY, type Deployment, startDeployment } from "./deployment.ts";
import { allUp } from "./fronted-nodes.ts";
import { startGateway, type TestGateway } from "./gateway.ts";
import type { NodeOptions, TestNode } from "./node.ts";
import { connectionTo } from "./template.ts";
import { until } from "./until.ts";

export type FedNodes = AsyncDisposable & {
  readonly deployment: Deployment;
  readonly gateway: TestGateway;
  readonly nodes: readonly [TestNode, TestNode];
  isUp(node: TestNode, isUp?: boolean): Promise<unknown>;
  setStatus(node: TestNode, status: "ready" | "draining"): Promise<void>;
  /** Takes a snapshot on this node of a sandbox in which `command` was run. */
  snapshotOn(node: TestNode, command: string, name?: string): Promise<string>;
  /** Returns the output of `command` in a new sandbox, started through the gateway. */
  shown(template: string, command: string): Promise<string>;
};

export const nodeIDOf = ({ home }: TestNode) => readFileSync(join(home, "node-id"), "utf8").trim();
/** The bytes of each fetch from other nodes, according to the log. */
export const fetchedBytes = (node: TestNode) =>
  [...node.log().matchAll(/"movedBytes":(\d+)[^\n]*"fetched from another node"/g)].map(([, bytes]) => Number(bytes));
/** Returns the temporary files of running fetches. */
export const coming = ({ home }: TestNode) => readdirSync(join(home, "snapshot-transfer")).filter((name) => /^(in|pack)-/.test(name));
export const checkpoints = ({ home }: TestNode) => readdirSync(join(home, "snapshots"));

export async function startFedNodes(options: readonly [NodeOptions, NodeOptions] = [{}, {}]): Promise<FedNodes> {
  const deployment = await startDeployment(10, 600);
  const nodes = (await Promise.all(options.map((each) => deployment.start(each)))) as [TestNode, TestNode];
  const gateway = await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY, flags: ["--gateway.queue_timeout_seconds=5"] });
  await until("two nodes", async () => ((await gateway.call(listNodes, {})).length === 2 ? true : undefined));
  await allUp(gateway);
  const statusOf = async (node: TestNode) => (await gateway.call(getNode, { nodeID: nodeIDOf(node) })).status;
  return {
    deployment,
    gateway,
    nodes,
    isUp: (node, isUp = true) => until("the gateway sees it", async () => (((await statusOf(node)) === "ready") === isUp ? true : undefined)),
    async setStatus(node, status) {
      await gateway.call(setNodeStatus, { nodeID: nodeIDOf(node), status });
      await until(`the node is ${status}`, async () => ((await statusOf(node)) === status ? true : undefined));
    },
    async snapshotOn(node, command, name) {
      const sandbox = await Sandbox.create("base", { ...connectionTo(node), timeoutMs: 600_000 });
      await sandbox.commands.run(command);
      const { snapshotID } = await node.call(createSnapshot, { sandboxID: sandbox.sandboxId, ...(name === undefined ? {} : { name }) });
      await node.call(deleteSandbox, { sandboxID: sandbox.sandboxId });
      return snapshotID;
    },
    async shown(template, command) {
      const sandbox = await Sandbox.create(template, { ...connectionTo(gateway), timeoutMs: 600_000 });
      try {
        const { stdout, exitCode } = await sandbox.commands.run(command);
        assert.equal(exitCode, 0);
        return stdout.trim();
      } finally {
        await sandbox.kill();
      }
    },
    async [Symbol.asyncDispose]() {
      await gateway[Symbol.asyncDispose]();
      await Promise.all(nodes.map((node) => node[Symbol.asyncDispose]()));
      await deployment[Symbol.asyncDispose]();
    },
  };
}
