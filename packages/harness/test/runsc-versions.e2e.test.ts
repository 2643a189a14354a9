// Paused sandboxes of a node that runs another version of runsc: moved away from it, taken over and deleted after its loss.
import assert from "node:assert/strict";
import { appendFileSync, copyFileSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { connectSandbox, moveSandbox, pauseSandbox } from "@svc/contract/lifecycle.ts";
import { listNodes } from "@svc/contract/nodes.ts";
import { createSandbox, deleteSandbox, getSandbox, listSandboxesV1 } from "@svc/contract/sandbox.ts";
import { sandboxRecord } from "@svc/contract/shared-records.ts";
import { Sandbox } from "e2b";
import { DEPLOYMENT_KEY, type Deployment, startDeployment } from "../src/deployment.ts";
import { startGateway, type TestGateway } from "../src/gateway.ts";
import { needs } from "../src/needs.ts";
import type { TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

void describe("sandboxes whose memory another version of runsc wrote", needs("root", "runsc", "envd", "base", "etcd", "xxh128sum"), () => {
  let folder: string;
  let deployment: Deployment;
  let gateway: TestGateway;
  let old: TestNode;
  let upgraded: TestNode;
  let boots: Record<string, string>;

  async function run(sandboxID: string, command: string): Promise<string> {
    const { url, apiKey } = gateway;
    const sandbox = await Sandbox.connect(sandboxID, { apiUrl: url, sandboxUrl: url, apiKey });
    return (await sandbox.commands.run(command)).stdout.trim();
  }
  const has = async (node: TestNode, sandboxID: string) => (await node.call(listSandboxesV1, {})).some((each) => each.sandboxID === sandboxID);
  const isNode = async (node: TestNode, status: string) => (await gateway.call(listNodes, {})).some((each) => each.url === node.url && each.status === status);
  const boot = "cat /proc/sys/kernel/random/boot_id";
  /** Creates a sandbox with a file and a running program on the old node, and pauses it until it is exported. */
  async function paused(): Promise<string> {
    const { sandboxID } = await old.call(createSandbox, { templateID: "base", timeout: 3600 });
    await run(sandboxID, "echo mine > kept; nohup sleep 86399 > /dev/null 2>&1 &");
    boots[sandboxID] = await run(sandboxID, boot);
    await gateway.call(pauseSandbox, { sandboxID });
    await until("it is exported", async () => {
      const kept = await deployment.etcd.get(deployment.keys.sandbox(sandboxID));
      return kept === undefined || sandboxRecord.parse(JSON.parse(kept.value)).manifest === undefined ? undefined : true;
    });
    return sandboxID;
  }
  async function checkMemory(sandboxID: string): Promise<void> {
    assert.equal(await has(upgraded, sandboxID), true);
    assert.equal(await run(sandboxID, "cat kept; pgrep -c -f 'sleep 86399'"), "mine\n1");
    assert.equal(await run(sandboxID, boot), boots[sandboxID]);
  }
  async function checkFilesAlone(sandboxID: string): Promise<void> {
    assert.equal(await has(upgraded, sandboxID), true);
    assert.equal(await run(sandboxID, "cat kept; pgrep -c -f 'slee[p] 86399' || true"), "mine\n0");
    assert.notEqual(await run(sandboxID, boot), boots[sandboxID]);
  }

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "svc-versions-"));
    boots = {};
    const earlier = join(folder, "runsc");
    copyFileSync(process.env["SVC_RUNSC"] ?? assert.fail("SVC_RUNSC names no runsc"), earlier);
    // A home distinguishes versions of runsc by content; bytes after the program's sections change the content and are never run.
    appendFileSync(earlier, "an earlier version");
    deployment = await startDeployment(10, 2);
    const flags = [`--objects.url=file://${folder}/objects`];
    old = await deployment.start({ flags, env: { SVC_RUNSC: earlier } });
    upgraded = await deployment.start({ flags });
    gateway = await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY });
    await until("both nodes", async () => ((await isNode(old, "ready")) && (await isNode(upgraded, "ready")) ? true : undefined));
  });
  after(async () => {
    await gateway?.[Symbol.asyncDispose]();
    for (const node of [old, upgraded]) await node?.[Symbol.asyncDispose]();
    await deployment?.[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
  });

  void test("one can be moved while its node lives, and continues on another node with its memory or from its files alone", async () => {
    const [whole, files] = [await paused(), await paused()];
    for (const sandboxID of [whole, files]) await gateway.call(moveSandbox, { sandboxID });
    await gateway.call(connectSandbox, { sandboxID: whole, timeout: 3600 });
    await checkMemory(whole);
    await gateway.call(connectSandbox, { sandboxID: files, timeout: 3600, memory: false });
    await checkFilesAlone(files);
    // The sandbox keeps its own version of runsc, even after another pause.
    await gateway.call(pauseSandbox, { sandboxID: whole });
    await upgraded.restart("SIGTERM");
    await until("it is back", async () => ((await isNode(upgraded, "ready")) ? true : undefined));
    await gateway.call(connectSandbox, { sandboxID: whole, timeout: 3600 });
    await checkMemory(whole);
    for (const sandboxID of [whole, files]) await gateway.call(deleteSandbox, { sandboxID });
  });

  void test("after the loss of their node they resume elsewhere, with memory or from files, and what cannot be resumed can be deleted", async () => {
    const [whole, files, broken, unwanted] = [await paused(), await paused(), await paused(), await paused()];
    await old.kill("SIGKILL");
    await until("it is dead", async () => ((await deployment.nodes()).some(({ state }) => state === "dead") ? true : undefined));
    const wait = { timeout: 3600 };
    const resumed = (sandboxID: string, memory: boolean) =>
      until("it resumes", () =>
        gateway.call(connectSandbox, { sandboxID, memory, ...wait }).then(
          () => true,
          () => undefined,
        ),
      );
    await resumed(whole, true);
    await checkMemory(whole);
    await resumed(files, false);
    await checkFilesAlone(files);

    // The chunks of this sandbox are removed from object storage, so no node can start it.
    const sandboxes = join(folder, "objects/manifests/sandboxes");
    const manifests = join(sandboxes, broken);
    const manifest = readFileSync(join(manifests, readdirSync(manifests)[0] ?? ""), "latin1");
    for (const sha256 of new Set(manifest.match(/\b[0-9a-f]{64}\b/g))) rmSync(join(folder, "objects/chunks", sha256.slice(0, 2), sha256), { force: true });
    await assert.rejects(gateway.call(connectSandbox, { sandboxID: broken, ...wait }), { name: "SNAPSHOT_DAMAGED" });
    const had = await upgraded.callForAnswer(listSandboxesV1, {});
    for (const sandboxID of [broken, unwanted]) {
      await gateway.call(deleteSandbox, { sandboxID });
      await assert.rejects(gateway.call(getSandbox, { sandboxID }), { name: "SANDBOX_NOT_FOUND" });
      await assert.rejects(gateway.call(deleteSandbox, { sandboxID }), { name: "SANDBOX_NOT_FOUND" });
    }
    // The deletes fetched nothing from object storage.
    assert.deepEqual(await upgraded.call(listSandboxesV1, {}), had.value);
    const listed = (await gateway.call(listSandboxesV1, {})).map(({ sandboxID }) => sandboxID);
    assert.deepEqual(listed.sort(), [whole, files].sort());
    const storedOf = (id: string) => (existsSync(join(sandboxes, id)) ? readdirSync(join(sandboxes, id)) : []);
    await until("object storage has nothing of them", () => ([broken, unwanted].flatMap(storedOf).length === 0 ? true : undefined));

    await old.start();
    await until("it is back", async () => ((await isNode(old, "ready")) ? true : undefined));
    for (const sandboxID of [broken, unwanted, whole, files]) assert.equal(await has(old, sandboxID), false);
    assert.deepEqual((await gateway.call(listSandboxesV1, {})).map(({ sandboxID }) => sandboxID).sort(), [whole, files].sort());
    for (const sandboxID of [broken, unwanted])
      await until("nothing is on record of it", async () => ((await deployment.etcd.get(deployment.keys.sandbox(sandboxID))) === undefined ? true : undefined));
  });
});
