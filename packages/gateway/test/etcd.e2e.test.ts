// A gateway that finds its nodes in etcd: they join, move and leave by themselves, and while etcd is down everything else continues.
import assert from "node:assert/strict";
import { mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { slotOf } from "@svc/contract/cluster-records.ts";
import { createSnapshot } from "@svc/contract/lifecycle.ts";
import { removeNode } from "@svc/contract/node-control.ts";
import { listNodes } from "@svc/contract/nodes.ts";
import { createSandbox, deleteSandbox, getSandbox, listSandboxesV1 } from "@svc/contract/sandbox.ts";
import { DEPLOYMENT_KEY, startDeployment } from "@svc/harness/deployment.ts";
import { startGateway, type TestGateway } from "@svc/harness/gateway.ts";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { weightOf } from "../src/place/place.ts";

const ready = (gateway: TestGateway, count: number) =>
  until(`${count} nodes`, async () => {
    const nodes = await gateway.call(listNodes, {});
    return nodes.length === count && nodes.every(({ status }) => status === "ready") ? nodes : undefined;
  });

void describe("a gateway with etcd", needs("root", "envd", "base", "runc", "etcd"), () => {
  void test("nodes that join are used at once, ids lead to them by their slot, and a restarted gateway knows all of them", async () => {
    await using deployment = await startDeployment();
    await using gateway = await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY });
    assert.equal((await fetch(`${gateway.url}/health`)).status, 503);
    await using first = await deployment.start({ runtime: "runc" });
    await ready(gateway, 1);
    await using second = await deployment.start({ runtime: "runc" });
    await ready(gateway, 2);
    assert.equal((await fetch(`${gateway.url}/health`)).status, 204);

    const created = await Promise.all(Array.from({ length: 4 }, () => gateway.call(createSandbox, { templateID: "base" })));
    const ids = created.map(({ sandboxID }) => sandboxID).sort();
    assert.equal(new Set(ids.map(slotOf)).size, 2);
    for (const node of [first, second]) assert.equal((await node.call(listSandboxesV1, {})).length, 2);
    await using another = await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY });
    await ready(another, 2);
    for (const sandboxID of ids) assert.equal((await another.call(getSandbox, { sandboxID })).sandboxID, sandboxID);

    // While etcd is down, creates, requests and deletes continue with the state that is known.
    const [etcd] = deployment.server.members;
    await etcd?.kill();
    try {
      const { sandboxID } = await gateway.call(createSandbox, { templateID: "base" });
      assert.equal((await another.call(getSandbox, { sandboxID })).sandboxID, sandboxID);
      await another.call(deleteSandbox, { sandboxID });
      await until("the word of it", () => (/etcd does not answer/.test(gateway.log()) ? true : undefined));
    } finally {
      await etcd?.start();
    }
    for (const sandboxID of ids) await gateway.call(deleteSandbox, { sandboxID });
  });

  void test("a create under a key that went to a second node, since the first was full, is not repeated on the first while the second is lost", async () => {
    await using deployment = await startDeployment();
    await using gateway = await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY });
    await using another = await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY });
    const flags = ["--sandbox.max_sandboxes=1"];
    const nodes = [await deployment.start({ runtime: "runc", flags }), await deployment.start({ runtime: "runc", flags })];
    await using _ = { [Symbol.asyncDispose]: async () => void (await Promise.all(nodes.map((node) => node[Symbol.asyncDispose]()))) };
    const names = new Map((await ready(gateway, 2)).map(({ id, url }) => [url, id]));
    await ready(another, 2);
    const [full, second] = nodes as [(typeof nodes)[number], (typeof nodes)[number]];
    const weight = (key: string, { url }: { url: string }) => weightOf(key, names.get(url) ?? "");
    const key = Array.from({ length: 64 }, (_, at) => `key-${at}`).find((each) => weight(each, full) > weight(each, second)) ?? "";
    const create = (at: TestGateway) => at.call(createSandbox, { templateID: "base", timeout: 3600, idempotencyKey: key });

    const filling = await full.call(createSandbox, { templateID: "base", timeout: 3600 });
    const { sandboxID } = await create(gateway);
    assert.equal((await second.call(getSandbox, { sandboxID })).sandboxID, sandboxID);
    await full.call(deleteSandbox, { sandboxID: filling.sandboxID });
    assert.equal((await create(another)).sandboxID, sandboxID);

    await second.kill("SIGKILL");
    for (const each of [gateway, another]) {
      await until("the loss is seen", async () => ((await each.call(listNodes, {})).some(({ status }) => status === "unhealthy") ? true : undefined));
      await assert.rejects(create(each), { name: "NODE_LOST", message: /may have created a sandbox under this Idempotency-Key/ });
    }
    await second.start();
    for (const each of [gateway, another]) {
      await ready(each, 2);
      assert.equal((await create(each)).sandboxID, sandboxID);
    }
    // Once a node is declared dead, its sandboxes are lost for good and the key is free.
    await second.kill("SIGKILL");
    await gateway.call(removeNode, { nodeID: names.get(second.url) ?? "", dead: true });
    const repeated = await until("it is created again", () => create(gateway).catch(() => undefined));
    assert.notEqual(repeated.sandboxID, sandboxID);
    assert.equal((await until("the other one finds it", () => create(another).catch(() => undefined))).sandboxID, repeated.sandboxID);
    await full.call(deleteSandbox, { sandboxID: repeated.sandboxID });
  });

  void test("a sandbox of a removed node is answered as lost with the node's name, and the node's snapshots in object storage start elsewhere", async () => {
    const folder = mkdtempSync(join(tmpdir(), "svc-storage-"));
    const storage = join(folder, "mounted");
    const flags = [`--objects.url=file://${storage}`, "--snapshots.durable=true"];
    await using deployment = await startDeployment();
    await using gateway = await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY });
    await using kept = await deployment.start({ runtime: "runc", flags });
    await using node = await deployment.start({ runtime: "runc", flags });
    await ready(gateway, 2);
    const { nodeID } = await deployment.nodeAt(node.url, "serves", ({ state }) => state === "serving");
    const { sandboxID } = await node.call(createSandbox, { templateID: "base" });
    const { snapshotID } = await node.call(createSnapshot, { sandboxID, memory: false });
    await node.kill("SIGKILL");
    await until("the loss is seen", async () => ((await gateway.call(listNodes, {})).some(({ status }) => status === "unhealthy") ? true : undefined));
    await assert.rejects(gateway.call(removeNode, { nodeID }), { name: "INVALID_REQUEST", message: /was killed a moment ago.*stop it first.*--dead/ });
    await gateway.call(removeNode, { nodeID, dead: true });

    await using fresh = await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY });
    for (const each of [gateway, fresh]) {
      await ready(each, 1);
      await until("it is answered as lost", async () => {
        const error = await each.call(getSandbox, { sandboxID }).catch((refusal: Error) => refusal);
        return "message" in error && error.name === "NODE_LOST" && error.message.includes(`${nodeID} was removed`) ? true : undefined;
      });
      const proxied = await fetch(`${each.url}/`, { headers: { "x-svc-sandbox-id": sandboxID, "x-svc-target-port": "49983" } });
      assert.deepEqual([proxied.status, proxied.headers.get("x-svc-reason")], [502, "node_lost"]);
    }
    await assert.rejects(fresh.call(getSandbox, { sandboxID: "unknown" }), { name: "SANDBOX_NOT_FOUND" });

    renameSync(storage, `${storage}-away`);
    await assert.rejects(fresh.call(createSandbox, { templateID: snapshotID }), { name: "OBJECTS_UNAVAILABLE", message: /is its file system mounted/ });
    assert.match(kept.log(), /is its file system mounted/);
    renameSync(`${storage}-away`, storage);
    await assert.rejects(fresh.call(createSandbox, { templateID: snapshotID, nodeLabels: "zone=elsewhere" }), { name: "TEMPLATE_NOT_FOUND" });
    await fresh.call(deleteSandbox, { sandboxID: (await fresh.call(createSandbox, { templateID: snapshotID })).sandboxID });
    await assert.rejects(fresh.call(createSandbox, { templateID: "nobody-has-this" }), { name: "TEMPLATE_NOT_FOUND", message: /not found on any node/ });
    rmSync(folder, { recursive: true });
  });
});
