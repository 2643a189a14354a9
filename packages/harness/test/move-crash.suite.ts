// Either node of a move is killed at each step, with etcd present or away: the sandbox is on one node, intact, and runs once.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { moveSandbox, pauseSandbox } from "@svc/contract/lifecycle.ts";
import { listNodes } from "@svc/contract/nodes.ts";
import { createSandbox, deleteSandbox, listSandboxesV1 } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { reached } from "../src/crash.ts";
import { DEPLOYMENT_KEY, type Deployment, startDeployment } from "../src/deployment.ts";
import { startGateway, type TestGateway } from "../src/gateway.ts";
import { leftovers } from "../src/leftovers.ts";
import { needs } from "../src/needs.ts";
import type { TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

/** The steps at which the source node is killed, the target node, and both. */
export type MoveCrashes = { readonly source: readonly string[]; readonly target: readonly string[]; readonly both: readonly string[] };

export function moveCrashSuite({ source, target, both }: MoveCrashes): void {
  void describe("a move whose node is killed", needs("root", "runsc", "envd", "base", "etcd", "xxh128sum"), () => {
    let folder: string;
    let deployment: Deployment;
    let gateway: TestGateway;
    let from: TestNode;
    let to: TestNode;

    before(async () => {
      folder = mkdtempSync(join(tmpdir(), "svc-moves-"));
      deployment = await startDeployment(10, 60);
      const flags = [`--objects.url=file://${folder}`, "--log-level=debug"];
      from = await deployment.start({ flags });
      to = await deployment.start({ flags });
      gateway = await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY });
      await allReady();
    });
    after(async () => {
      await gateway?.[Symbol.asyncDispose]();
      await from?.[Symbol.asyncDispose]();
      await to?.[Symbol.asyncDispose]();
      await deployment?.[Symbol.asyncDispose]();
      rmSync(folder, { recursive: true, force: true });
    });

    const allReady = () =>
      until("both nodes", async () => {
        const listed = await gateway.call(listNodes, {});
        return listed.length === 2 && listed.every(({ status }) => status === "ready") ? true : undefined;
      });
    const has = async (node: TestNode, sandboxID: string) => (await node.call(listSandboxesV1, {})).some((each) => each.sandboxID === sandboxID);
    const runsOn = (node: TestNode, sandboxID: string) => leftovers(node.home).processes.some((what) => what.includes(sandboxID));
    const idOf = async ({ url }: TestNode) => (await deployment.nodeAt(url, "serves", ({ state }) => state === "serving")).nodeID;

    async function run(sandboxID: string, command: string): Promise<string> {
      const sandbox = await Sandbox.connect(sandboxID, { apiUrl: gateway.url, sandboxUrl: gateway.url, apiKey: DEPLOYMENT_KEY });
      return (await sandbox.commands.run(command)).stdout.trim();
    }

    /** Moves a sandbox that counts its commands, runs `kill` at this step, and returns the sandbox's fate. */
    async function moveUntil(watched: TestNode, step: string, kill: () => Promise<void>, isPaused: boolean): Promise<string> {
      const nodeID = await idOf(to);
      const { sandboxID } = await from.call(createSandbox, { templateID: "base", timeout: 3600, autoPause: true, autoResume: { enabled: true } });
      await run(sandboxID, "echo 1 > count");
      if (isPaused) await from.call(pauseSandbox, { sandboxID });
      await reached(watched, step, () => from.call(moveSandbox, { sandboxID, nodeID }));
      await kill();
      return sandboxID;
    }

    async function isOnOneNode(sandboxID: string): Promise<void> {
      await allReady();
      const count = await until("it goes on", () => run(sandboxID, "echo $(( $(cat count) + 1 )) > count; cat count").catch(() => undefined));
      // A different count would come from a second instance, or from an older state.
      assert.equal(count, "2");
      await until("one node has it", async () => (Number(await has(from, sandboxID)) + Number(await has(to, sandboxID)) === 1 ? true : undefined));
      assert.equal(await has(from, sandboxID), runsOn(from, sandboxID));
      assert.equal(await has(to, sandboxID), runsOn(to, sandboxID));
      await gateway.call(deleteSandbox, { sandboxID });
      await until("nothing is left in etcd", async () => ((await deployment.etcd.get(deployment.keys.sandbox(sandboxID))) === undefined ? true : undefined));
    }

    for (const [index, step] of source.entries()) {
      void test(`at ${step} the source node`, async () => {
        const sandboxID = await moveUntil(from, step, () => from.kill("SIGKILL"), index % 2 === 0);
        await from.start();
        await isOnOneNode(sandboxID);
      });
    }
    for (const [index, step] of target.entries()) {
      void test(`at ${step} the target node`, async () => {
        const sandboxID = await moveUntil(to, step, () => to.kill("SIGKILL"), index % 2 === 0);
        await to.start();
        await isOnOneNode(sandboxID);
      });
    }
    for (const step of both) {
      void test(`at ${step} both nodes, while etcd is stopped`, async () => {
        const [etcd] = deployment.server.members;
        const watched = step.startsWith("move") ? from : to;
        const sandboxID = await moveUntil(
          watched,
          step,
          async () => {
            await etcd?.freeze();
            await Promise.all([from.kill("SIGKILL"), to.kill("SIGKILL")]);
            etcd?.thaw();
          },
          true,
        );
        await Promise.all([from.start(), to.start()]);
        await isOnOneNode(sandboxID);
      });
    }
  });
}
