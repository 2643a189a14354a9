// A rolling upgrade between two real versions: nodes of an earlier commit and of this tree run together and are upgraded one by one.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { pauseSandbox } from "@svc/contract/lifecycle.ts";
import { getNodeDrain, setNodeStatus } from "@svc/contract/node-control.ts";
import { listNodes } from "@svc/contract/nodes.ts";
import { createSandbox, deleteSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { DEPLOYMENT_KEY, startDeployment } from "../src/deployment.ts";
import { earlierTree, missingCommit } from "../src/earlier-tree.ts";
import { startGateway, type TestGateway } from "../src/gateway.ts";
import { needs } from "../src/needs.ts";
import type { TestNode } from "../src/node.ts";
import { startObjectServer } from "../src/object-server.ts";
import { until } from "../src/until.ts";

const { releases } = JSON.parse(readFileSync(new URL("../../../releases.json", import.meta.url), "utf8")) as {
  releases: readonly { readonly version: string; readonly commit: string }[];
};

/** The commit of the last release; SVC_UPGRADE_FROM selects another one. */
const EARLIER = releases.slice(-1).map(({ version, commit }) => ({ commit: process.env["SVC_UPGRADE_FROM"] ?? commit, what: `release ${version}` }));

const STORED = "s3://test/upgrade";

for (const { commit, what } of EARLIER) {
  const host = needs("root", "runsc", "envd", "base", "etcd", "object-server", "git", "tar");
  const skip = host.skip || missingCommit(commit) || (process.env["SVC_GO"] === undefined ? "SVC_GO names no Go to build its envd with" : false);
  void test(`a deployment of ${what} is upgraded node by node: running and paused sandboxes continue, through gateways of both`, { skip }, () =>
    upgrade(commit),
  );
}

async function upgrade(commit: string): Promise<void> {
  await using earlier = await earlierTree(commit);
  await using deployment = await startDeployment(10, 60);
  await using objects = await startObjectServer();
  const flags = [`--objects.url=${STORED}`, `--objects.endpoint=${objects.endpoint}`];
  const old = { tree: earlier.root, env: { ...objects.env, ...earlier.env }, flags };
  await using first = await deployment.start(old);
  await using second = await deployment.start(old);
  await using third = await deployment.start(old);
  const nodes = [first, second, third];
  const front = { etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY, env: objects.env, flags };
  await using before = await startGateway({ ...front, tree: earlier.root });
  await using after = await startGateway(front);
  const gateways = [before, after];
  await allReady(gateways, nodes.length);

  const made: { readonly sandboxID: string; readonly word: string; readonly isPaused: boolean }[] = [];
  for (const [index, node] of nodes.entries()) {
    for (const isPaused of [true, false]) {
      const { sandboxID } = await node.call(createSandbox, { templateID: "base", timeout: 3600, autoPause: true, autoResume: { enabled: true } });
      const word = `${index}-${isPaused}`;
      await said(before, sandboxID, `echo ${word} > kept; sleep 100000 > /dev/null 2>&1 & echo $! > pid`);
      if (isPaused) await before.call(pauseSandbox, { sandboxID });
      made.push({ sandboxID, word, isPaused });
    }
  }

  /** Checks the earlier memory and files through each gateway. */
  async function goesOn({ sandboxID, word }: (typeof made)[number]): Promise<void> {
    for (const gateway of gateways) assert.equal(await said(gateway, sandboxID, "cat kept; kill -0 $(cat pid) && echo alive"), `${word}\nalive`);
  }

  const upgraded = { env: { SVC_ENVD: process.env["SVC_ENVD"] ?? "" } };
  const ways: ((node: TestNode) => Promise<void>)[] = [
    async (node) => {
      const { nodeID } = await deployment.nodeAt(node.url, "serves", ({ state }) => state === "serving");
      await after.call(setNodeStatus, { nodeID, status: "draining" });
      await until("nothing runs there", async () => ((await node.call(getNodeDrain, { nodeID: "self" })).running === 0 ? true : undefined));
      await node.restart("SIGTERM", upgraded);
      await before.call(setNodeStatus, { nodeID, status: "ready" });
    },
    (node) => node.restart("SIGTERM", upgraded),
    (node) => node.restart("SIGKILL", upgraded),
  ];
  for (const [index, node] of nodes.entries()) {
    await ways[index]?.(node);
    await allReady(gateways, nodes.length);
    // Running sandboxes continue everywhere; a paused one is resumed once its node has been upgraded.
    for (const each of made) if (!each.isPaused || each.word.startsWith(`${index}-`)) await goesOn(each);
    for (const gateway of gateways) {
      const { sandboxID } = await gateway.call(createSandbox, { templateID: "base" });
      assert.equal(await said(gateway, sandboxID, "echo fresh"), "fresh");
      await gateway.call(deleteSandbox, { sandboxID });
    }
    // A sandbox that one version started is paused through the other version's gateway, and resumed later.
    for (const each of made) if (each.word === `${index}-false`) await after.call(pauseSandbox, { sandboxID: each.sandboxID });
  }
  for (const each of made) {
    await goesOn(each);
    assert.equal((await after.call(getSandbox, { sandboxID: each.sandboxID })).state, "running");
  }
}

const allReady = (gateways: readonly TestGateway[], count: number) =>
  Promise.all(
    gateways.map((gateway) =>
      until("all nodes are ready", async () => {
        const listed = await gateway.call(listNodes, {});
        return listed.length === count && listed.every(({ status }) => status === "ready") ? true : undefined;
      }),
    ),
  );

/** Runs a command, which resumes a paused sandbox. */
async function said(gateway: TestGateway, sandboxID: string, command: string): Promise<string> {
  const sandbox = await Sandbox.connect(sandboxID, { apiUrl: gateway.url, sandboxUrl: gateway.url, apiKey: DEPLOYMENT_KEY, timeoutMs: 3_600_000 });
  return (await sandbox.commands.run(command)).stdout.trim();
}
