// A rolling upgrade from the last release, under load: nodes and gateways of both versions run together, and nodes are upgraded one by one.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { pauseSandbox } from "@svc/contract/lifecycle.ts";
import { getNodeDrain, setNodeStatus } from "@svc/contract/node-control.ts";
import { listNodes } from "@svc/contract/nodes.ts";
import { createSandbox, deleteSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { treeCommit } from "@svc/kit/commit.ts";
import { Sandbox } from "e2b";
import { DEPLOYMENT_KEY, startDeployment } from "../src/deployment.ts";
import { earlierTree, missingCommit } from "../src/earlier-tree.ts";
import { startGateway, type TestGateway } from "../src/gateway.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { startObjectServer } from "../src/object-server.ts";
import { until } from "../src/until.ts";
import { type LoadReport, startLoad } from "../src/upgrade-load.ts";

const { releases } = JSON.parse(readFileSync(new URL("../../../releases.json", import.meta.url), "utf8")) as {
  releases: readonly { readonly version: string; readonly commit: string }[];
};

/** The commit of the last release; SVC_UPGRADE_FROM selects another one. */
const named = process.env["SVC_UPGRADE_FROM"];
const last = releases.at(-1);
const earlier = named === undefined ? last : { version: named.slice(0, 12), commit: named };

const STORED = "s3://test/upgrade";
const CLI = fileURLToPath(new URL("../../cli/src/main.ts", import.meta.url));
const CLIENTS = 4;
/** How long the clients work between two changes. */
const LOADED_MS = 5_000;

if (earlier === undefined) void test("a deployment of the last release is upgraded", { skip: "releases.json has no release yet" }, () => undefined);
else {
  const { commit, version } = earlier;
  const host = needs("root", "runsc", "envd", "base", "etcd", "object-server", "git", "tar");
  const skip = host.skip || missingCommit(commit) || (process.env["SVC_GO"] === undefined ? "SVC_GO names no Go to build its envd with" : false);
  void test(`a deployment of release ${version} is upgraded node by node under load, and loses nothing that was acknowledged`, { skip }, (t) =>
    upgrade(commit, t),
  );
  void test(`svc nodes upgrade replaces the nodes of release ${version} one at a time, stops at a failure, and continues from there`, { skip }, () =>
    upgradeByCommand(commit),
  );
  void test(`a single node of release ${version} is upgraded under load, and loses nothing that was acknowledged`, { skip }, (t) => upgradeOne(commit, t));
}

/** `svc nodes upgrade`, with a command that asks this test to replace the node; the first time it refuses one. */
async function upgradeByCommand(commit: string): Promise<void> {
  await using earlier = await earlierTree(commit);
  await using deployment = await startDeployment(10, 60);
  await using objects = await startObjectServer();
  const flags = [`--objects.url=${STORED}`, `--objects.endpoint=${objects.endpoint}`];
  const old = { tree: earlier.root, env: { ...objects.env, ...earlier.env }, flags };
  await using first = await deployment.start(old);
  await using second = await deployment.start(old);
  await using gateway = await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY, env: objects.env, flags });
  await allReady([gateway], 2);
  const { sandboxID } = await first.call(createSandbox, { templateID: "base", timeout: 3600 });
  await said(gateway, sandboxID, "echo mine > kept");

  const replaced: string[] = [];
  let isBroken = true;
  await using server = createServer((request, response) => {
    const node = [first, second].find(({ url }) => request.url === `/${new URL(url).port}`);
    if (node === undefined || (isBroken && replaced.length === 1)) return response.writeHead(500).end();
    replaced.push(node.url);
    void node.restart("SIGTERM", { env: { SVC_ENVD: process.env["SVC_ENVD"] ?? "" } }).then(() => response.end());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const to = treeCommit();
  const run = `curl -fsS "http://127.0.0.1:${port}/\${SVC_NODE_URL##*:}"`;
  const command = () =>
    promisify(execFile)(process.execPath, [CLI, "nodes", "upgrade", "--to", to, "--run", run], {
      env: { ...process.env, SVC_URL: gateway.url, SDK_API_KEY: DEPLOYMENT_KEY },
    });
  await assert.rejects(command(), ({ code, stderr }: { code: number; stderr: string }) => {
    assert.equal(code, 1, stderr);
    assert.match(stderr, /svc: node node-\w+ was not upgraded, and no other one is touched: the command of --run ended with \d+\n/);
    return true;
  });
  const commits = async () => (await gateway.call(listNodes, {})).map((node) => node.commit).sort();
  assert.deepEqual(await commits(), [commit, to].sort());
  isBroken = false;
  assert.match((await command()).stderr, new RegExp(`all nodes run ${to}`));
  assert.deepEqual(await commits(), [to, to]);
  assert.deepEqual(replaced.toSorted(), [first.url, second.url].toSorted(), "each node is replaced once");
  assert.equal(await said(gateway, sandboxID, "cat kept"), "mine");
}

/** A node without etcd, as `svc up` starts it: it is stopped and started again in the present version. */
async function upgradeOne(commit: string, t: TestContext): Promise<void> {
  await using earlier = await earlierTree(commit);
  await using node = await startNode({ runtime: "gvisor", tree: earlier.root, env: earlier.env });
  const load = startLoad([node.url], node.apiKey, CLIENTS);
  for (const signal of ["SIGTERM", "SIGKILL"] as const) {
    await delay(LOADED_MS);
    await node.restart(signal, { env: { SVC_ENVD: process.env["SVC_ENVD"] ?? "" } });
  }
  await delay(LOADED_MS);
  report(t, await load.finish());
}

async function upgrade(commit: string, t: TestContext): Promise<void> {
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

  const load = startLoad(
    gateways.map(({ url }) => url),
    DEPLOYMENT_KEY,
    CLIENTS,
  );
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
    await delay(LOADED_MS);
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
  await before.restart("SIGTERM", { env: {}, isPresent: true });
  await allReady(gateways, nodes.length);
  await delay(LOADED_MS);
  report(t, await load.finish());
  for (const each of made) {
    await goesOn(each);
    assert.equal((await after.call(getSandbox, { sandboxID: each.sandboxID })).state, "running");
  }
}

function report(t: TestContext, { acknowledged, retried, slowestMs }: LoadReport): void {
  assert.ok(acknowledged > CLIENTS, "the clients worked");
  t.diagnostic(`note: ${acknowledged} requests acknowledged, the slowest after ${slowestMs} ms; retried: ${JSON.stringify(retried)}`);
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
