// A gateway lists sandboxes, snapshots and templates that are in object storage after the node that paused or made them is gone.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { createSnapshot, getSnapshot, listSnapshots, pauseSandbox, resumeSandbox } from "@svc/contract/lifecycle.ts";
import { removeNode } from "@svc/contract/node-control.ts";
import { listNodes } from "@svc/contract/nodes.ts";
import { createSandbox, deleteSandbox, listSandboxes, listSandboxesV1 } from "@svc/contract/sandbox.ts";
import { deleteTemplate, getTemplate, listTemplates, listTemplatesV2 } from "@svc/contract/template.ts";
import { DEPLOYMENT_KEY, type Deployment, startDeployment } from "@svc/harness/deployment.ts";
import { startGateway, type TestGateway } from "@svc/harness/gateway.ts";
import { needs } from "@svc/harness/needs.ts";
import type { TestNode } from "@svc/harness/node.ts";
import { build } from "@svc/harness/template.ts";
import { until } from "@svc/harness/until.ts";
import { Template } from "e2b";

const MISSING = "svc-missing-nodes";
/** Longer than fits into the sandbox's record in etcd. */
const LONG = "x".repeat(3000);

void describe("lists of what is stored only in object storage", needs("root", "envd", "base", "bwrap", "etcd", "xxh128sum"), () => {
  let folder: string;
  let deployment: Deployment;
  let gateway: TestGateway;
  let staying: TestNode;
  let leaving: TestNode;
  let leavingID: string;
  const paused: string[] = [];
  let running: string;
  let snapshotID: string;

  const isNode = async (at: TestGateway, url: string, status: string) =>
    (await at.call(listNodes, {})).some((node) => node.url === url && node.status === status);
  const pages = async (at: TestGateway, query: object): Promise<[string[], string | null]> => {
    const ids: string[] = [];
    let nextToken: string | undefined;
    for (;;) {
      const { value, headers } = await at.callForAnswer(listSandboxes, { limit: 1, ...query, ...(nextToken === undefined ? {} : { nextToken }) } as never);
      ids.push(...value.map(({ sandboxID }) => sandboxID));
      nextToken = headers.get("x-next-token") ?? undefined;
      if (nextToken === undefined) return [ids, headers.get(MISSING)];
    }
  };
  const fresh = async () => {
    const another = await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY });
    await until("it knows the node that stays", async () => ((await isNode(another, staying.url, "ready")) ? true : undefined));
    return another;
  };

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "svc-stored-only-"));
    deployment = await startDeployment(10, 2);
    const options = { runtime: "bubblewrap", flags: [`--objects.url=file://${folder}`] } as const;
    [staying, leaving] = await Promise.all([deployment.start(options), deployment.start(options)]);
    gateway = await fresh();
    await until("both nodes", async () => ((await isNode(gateway, leaving.url, "ready")) ? true : undefined));
    leavingID = (await deployment.nodeAt(leaving.url, "serves", ({ state }) => state === "serving")).nodeID;
    for (const text of ["first", LONG, "third"]) {
      const { sandboxID } = await leaving.call(createSandbox, { templateID: "base", timeout: 3600, metadata: { text, of: "many" } });
      paused.push(sandboxID);
      await leaving.call(pauseSandbox, { sandboxID, memory: false });
    }
    running = (await staying.call(createSandbox, { templateID: "base", timeout: 3600 })).sandboxID;
    const source = await leaving.call(createSandbox, { templateID: "base", timeout: 3600 });
    await leaving.call(createSnapshot, { sandboxID: source.sandboxID, name: "ready", memory: false });
    ({ snapshotID } = await leaving.call(createSnapshot, { sandboxID: source.sandboxID, name: "ready", memory: false }));
    await leaving.call(deleteSandbox, { sandboxID: source.sandboxID });
    await build(leaving, Template().fromTemplate("base").runCmd("echo site > /tmp/site"), "site", { tags: ["stable"] });
    const count = async (prefix: string) => (await deployment.etcd.list(prefix)).entries.length;
    const { keys } = deployment;
    await until("all of it is on record", async () => {
      const counts = await Promise.all([keys.sandboxes, keys.snapshots, keys.templates].map(count));
      return counts.join() === "3,2,1" ? true : undefined;
    });
  });
  after(async () => {
    await gateway?.[Symbol.asyncDispose]();
    for (const node of [staying, leaving]) await node?.[Symbol.asyncDispose]();
    await deployment?.[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
  });

  async function checkLists(at: TestGateway): Promise<void> {
    const [, second = ""] = paused;
    assert.deepEqual((await pages(at, { order: "asc" }))[0], [...paused, running]);
    assert.deepEqual((await pages(at, { order: "desc" }))[0], [running, ...[...paused].reverse()]);
    assert.deepEqual((await pages(at, { state: "paused", metadata: `text=${LONG}` }))[0], [second]);
    assert.deepEqual((await pages(at, { state: "running" }))[0], [running]);
    assert.deepEqual((await at.call(listSandboxesV1, { metadata: "of=many" })).map(({ sandboxID }) => sandboxID).sort(), [...paused].sort());
    const snapshots = await at.call(listSnapshots, {});
    assert.deepEqual(
      snapshots.map(({ names }) => names),
      [["ready:default"], []],
    );
    assert.equal(snapshots[0]?.snapshotID, snapshotID);
    assert.equal((await at.callForAnswer(listSnapshots, { limit: 1 } as never)).headers.has("x-next-token"), true);
    assert.deepEqual(
      (await at.call(listSnapshots, { name: "ready" })).map((each) => each.snapshotID),
      [snapshotID],
    );
    for (const templates of [await at.call(listTemplates, {}), await at.call(listTemplatesV2, {})])
      for (const name of ["base", "site"]) assert.equal(templates.filter(({ names }) => names.includes(name)).length, 1, name);
  }

  void test("while all nodes answer, each item is listed once, as its node shows it", async () => {
    await checkLists(gateway);
    assert.equal((await pages(gateway, {}))[1], null);
  });

  void test("when the node is dead, its paused sandboxes, snapshots and templates are listed in the same order, and the node is named as missing", async () => {
    await leaving.kill("SIGKILL");
    await until("the loss is seen", async () => ((await isNode(gateway, leaving.url, "unhealthy")) ? true : undefined));
    await checkLists(gateway);
    await using another = await fresh();
    await checkLists(another);
    for (const at of [gateway, another]) assert.deepEqual((await pages(at, {}))[1], leavingID);
  });

  void test("after the node was removed, its items are still listed and start, and they leave the list when they are deleted", async () => {
    await until("it can be removed", () => staying.call(removeNode, { nodeID: leavingID, dead: true }).then(() => true));
    await using another = await fresh();
    await checkLists(another);
    assert.equal((await pages(another, {}))[1], null);
    assert.equal((await another.call(getSnapshot, { snapshotID: "ready" })).snapshotID, snapshotID);
    await assert.rejects(another.call(getTemplate, { templateID: "site" }), { name: "NODE_LOST", message: /not part of the deployment any more/ });

    const [first = ""] = paused;
    await another.call(resumeSandbox, { sandboxID: first, timeout: 600 });
    assert.deepEqual((await pages(another, { state: "running", order: "asc" }))[0], [first, running]);
    assert.deepEqual((await pages(another, { order: "asc" }))[0], [...paused, running]);
    const started = await another.call(createSandbox, { templateID: "site:stable" });
    await another.call(deleteSandbox, { sandboxID: started.sandboxID });
    for (const templateID of ["site", "ready"]) await another.call(deleteTemplate, { templateID });
    const names = async () => [...(await another.call(listTemplates, {})), ...(await another.call(listSnapshots, {}))].flatMap((each) => each.names);
    await until("both are gone", async () => {
      const left = await names();
      return left.includes("site") || left.includes("ready:default") ? undefined : true;
    });
  });
});
