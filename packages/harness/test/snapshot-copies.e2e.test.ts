// Snapshots fetched from object storage by another node: their names mean the same as on their own node, and a delete reaches all copies.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { createSnapshot, getSnapshot, listSnapshots } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox } from "@svc/contract/sandbox.ts";
import { deleteTemplate } from "@svc/contract/template.ts";
import { allUp, type FrontedNodes, startFrontedNodes } from "../src/fronted-nodes.ts";
import type { TestGateway } from "../src/gateway.ts";
import { needs } from "../src/needs.ts";
import type { TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

void describe("a snapshot that two nodes have, with object storage", needs("root", "envd", "base", "bwrap", "xxh128sum"), () => {
  let folder: string;
  let deployment: FrontedNodes;
  let gateway: TestGateway;
  let taker: TestNode;
  let other: TestNode;
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "svc-copies-"));
    const secret = join(folder, "secret");
    writeFileSync(secret, "g".repeat(40), { mode: 0o600 });
    const flags = [`--objects.url=file://${folder}/objects`, `--node.deployment_secret_file=${secret}`];
    deployment = await startFrontedNodes({ node: { runtime: "bubblewrap", flags } });
    ({ gateway } = deployment);
    [taker, other] = deployment.nodes as [TestNode, TestNode];
  });
  after(async () => {
    await deployment?.[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
  });

  const ids = async (at: Pick<TestNode, "call">) => (await at.call(listSnapshots, {})).map(({ snapshotID }) => snapshotID).sort();
  const manifestOf = (snapshotID: string) => join(folder, "objects/manifests/snapshots", snapshotID);
  async function take(): Promise<string> {
    const { sandboxID } = await taker.call(createSandbox, { templateID: "base", timeout: 600 });
    const { snapshotID } = await taker.call(createSnapshot, { sandboxID, name: "ready", memory: false });
    await taker.call(deleteSandbox, { sandboxID });
    const name = join(folder, "objects/names/ready/default");
    await until("object storage has it", () => (existsSync(name) && readFileSync(name, "utf8") === snapshotID ? true : undefined));
    return snapshotID;
  }
  const startOnOther = async (asked: string) => {
    const { sandboxID, templateID } = await other.call(createSandbox, { templateID: asked, timeout: 600 });
    await other.call(deleteSandbox, { sandboxID });
    return templateID;
  };
  const isKnown = (snapshotIDs: readonly string[]) =>
    until("the gateway knows", async () => ((await ids(gateway)).join() === [...snapshotIDs].sort().join() ? true : undefined));

  void test("loses its name to a newer one on both, and is listed once, as its own node shows it", async () => {
    const first = await take();
    assert.equal(await startOnOther("ready"), first);
    const second = await take();
    await isKnown([first, second]);
    assert.equal(await startOnOther("ready"), second);
    assert.deepEqual(await ids(other), [first, second].sort());
    assert.deepEqual(
      (await other.call(listSnapshots, {})).flatMap(({ names }) => names),
      [],
    );
    const listed = new Map((await gateway.call(listSnapshots, {})).map(({ snapshotID, names }) => [snapshotID, names]));
    assert.deepEqual([listed.size, listed.get(first), listed.get(second)], [2, [], ["ready:default"]]);
    assert.equal((await gateway.call(getSnapshot, { snapshotID: "ready" })).snapshotID, second);
    await other.restart("SIGKILL");
    await allUp(gateway);
    assert.deepEqual(
      (await gateway.call(listSnapshots, { name: "ready" })).map(({ snapshotID }) => snapshotID),
      [second],
    );
  });

  void test("is deleted on both, and in object storage", async () => {
    const [first = "", second = ""] = (await gateway.call(listSnapshots, {})).map(({ snapshotID }) => snapshotID).reverse();
    await gateway.call(deleteTemplate, { templateID: "ready" });
    assert.deepEqual([await ids(taker), await ids(other), await ids(gateway)], [[first], [first], [first]]);
    await until("object storage forgets it", () => (existsSync(manifestOf(second)) ? undefined : true));
    for (const entry of [gateway, taker, other]) await assert.rejects(entry.call(createSandbox, { templateID: second }), { name: "TEMPLATE_NOT_FOUND" });
    assert.equal(existsSync(manifestOf(first)), true);
  });

  void test("counts as deleted, too, if the other node was away during the delete", async () => {
    const [first = ""] = await ids(gateway);
    await other.kill("SIGKILL");
    await until("the loss is seen", () => gateway.call(deleteTemplate, { templateID: first }).then(() => true));
    await other.start();
    await allUp(gateway);
    assert.deepEqual(await ids(gateway), []);
    await assert.rejects(gateway.call(createSandbox, { templateID: first }), { name: "TEMPLATE_NOT_FOUND" });
    await until("object storage forgets it", () => (existsSync(manifestOf(first)) ? undefined : true));
    // The copy's node must not put anything back.
    await other.restart("SIGTERM");
    assert.equal(existsSync(manifestOf(first)), false);
  });

  void test("loses its name for good to one that the other node took, also with a fixed list of nodes, whatever object storage says of the name", async () => {
    const on = async (node: TestNode) => {
      const { sandboxID } = await node.call(createSandbox, { templateID: "base", timeout: 600 });
      const { snapshotID } = await node.call(createSnapshot, { sandboxID, name: "ready", memory: false });
      await node.call(deleteSandbox, { sandboxID });
      await until("object storage has it", () => (existsSync(manifestOf(snapshotID)) ? true : undefined));
      return snapshotID;
    };
    const older = await on(taker);
    const newer = await on(other);
    await isKnown([older, newer]);
    const started = async (asked: string) => {
      const { sandboxID, templateID } = await gateway.call(createSandbox, { templateID: asked, timeout: 600 });
      await gateway.call(deleteSandbox, { sandboxID });
      return templateID;
    };
    assert.equal(await started("ready"), newer);
    await until("the older one's node dropped the name", async () =>
      (await taker.call(listSnapshots, {})).every(({ names }) => names.length === 0) ? true : undefined,
    );
    // A node that did not know of the newer snapshot when its upload ended leaves this.
    writeFileSync(join(folder, "objects/names/ready/default"), older);
    const direct = await taker.call(createSandbox, { templateID: "ready", timeout: 600 });
    assert.equal(direct.templateID, newer);
    await taker.call(deleteSandbox, { sandboxID: direct.sandboxID });
    await other.kill("SIGKILL");
    await until("the loss is seen", async () => ((await started("ready")) === newer ? true : undefined));
    await other.start();
    await allUp(gateway);
    await gateway.call(deleteTemplate, { templateID: "ready" });
    for (const entry of [gateway, taker, other]) await assert.rejects(entry.call(createSandbox, { templateID: "ready" }), { name: "TEMPLATE_NOT_FOUND" });
    assert.deepEqual(await ids(gateway), [older]);
    await gateway.call(deleteTemplate, { templateID: older });
  });
});
