// A gateway in front of two real nodes: unmodified clients, merged lists, and every request to the node of its sandbox.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { SvcClient } from "@svc/contract/client.ts";
import { createSnapshot } from "@svc/contract/lifecycle.ts";
import { setNodeStatus } from "@svc/contract/node-control.ts";
import { getNode, getScaling, listNodes } from "@svc/contract/nodes.ts";
import { createSandbox, deleteSandbox, getSandbox, listSandboxes, listSandboxesV1 } from "@svc/contract/sandbox.ts";
import { deleteTemplate, listTemplates, listTemplatesV2 } from "@svc/contract/template.ts";
import { allUp, type FrontedNodes, startFrontedNodes } from "@svc/harness/fronted-nodes.ts";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { Sandbox } from "e2b";

void describe("a gateway with two nodes", needs("root", "envd", "base", "runc"), () => {
  let deployment: FrontedNodes;
  before(async () => {
    deployment = await startFrontedNodes({ gateways: 2 });
  });
  after(async () => {
    await deployment[Symbol.asyncDispose]();
  });

  void test("new sandboxes spread over the nodes, and each is found by its id, listed once and deleted", async () => {
    const { gateway, nodes } = deployment;
    const created = await Promise.all(Array.from({ length: 6 }, () => gateway.call(createSandbox, { templateID: "base" })));
    const ids = created.map(({ sandboxID }) => sandboxID).sort();
    const perNode = await Promise.all(nodes.map(async (node) => (await node.call(listSandboxesV1, {})).map(({ sandboxID }) => sandboxID)));
    // The split is even within one: on a busy machine some sandboxes have started before the last creates come, and count less than pending ones.
    const counts = perNode.map((held) => held.length);
    assert.ok(counts.length === 2 && counts.every((count) => count >= 2 && count <= 4), String(counts));
    assert.deepEqual((await gateway.call(listSandboxesV1, {})).map(({ sandboxID }) => sandboxID).sort(), ids);
    for (const id of ids) assert.equal((await gateway.call(getSandbox, { sandboxID: id })).sandboxID, id);

    const paged: string[] = [];
    for (let nextToken: string | undefined, pages = 0; pages < 10; pages++) {
      const page = await gateway.callForAnswer(listSandboxes, { limit: 2, order: "asc", ...(nextToken === undefined ? {} : { nextToken }) });
      paged.push(...page.value.map(({ sandboxID }) => sandboxID));
      nextToken = page.headers.get("x-next-token") ?? undefined;
      if (nextToken === undefined) break;
    }
    assert.deepEqual(paged.sort(), ids);

    for (const id of ids) await gateway.call(deleteSandbox, { sandboxID: id });
    await assert.rejects(gateway.call(getSandbox, { sandboxID: ids[0] ?? "" }), { name: "SANDBOX_NOT_FOUND", message: /it ended at .* \(killed\)/ });
    await assert.rejects(gateway.call(getSandbox, { sandboxID: "never-was" }), { name: "SANDBOX_NOT_FOUND" });
    await until("no sandbox on any node", async () => ((await gateway.call(listSandboxesV1, {})).length === 0 ? true : undefined));
  });

  void test("the E2B JS SDK works through a gateway: commands, files, ports, list, kill", async () => {
    const { gateway } = deployment;
    const connection = { apiUrl: gateway.url, sandboxUrl: gateway.url, apiKey: gateway.apiKey };
    const sandbox = await Sandbox.create("base", { ...connection, timeoutMs: 600_000, metadata: { purpose: "gateway" } });
    assert.equal((await sandbox.commands.run("python3 -c 'print(6*7)'")).stdout, "42\n");
    const seen: string[] = [];
    const cat = await sandbox.commands.run("cat", { background: true, stdin: true, onStdout: (text) => void seen.push(text) });
    await sandbox.commands.sendStdin(cat.pid, "one\n");
    await until("the echo of cat", () => (seen.join("") === "one\n" ? true : undefined));
    await cat.kill();
    await sandbox.files.write("/home/user/a.txt", "through the gateway");
    assert.equal(await sandbox.files.read("/home/user/a.txt"), "through the gateway");
    const signed = await sandbox.downloadUrl("/home/user/a.txt", { useSignatureExpiration: 600 });
    const bare = new URL(signed);
    assert.equal(await (await fetch(`${gateway.url}${bare.pathname}${bare.search}`)).text(), "through the gateway");
    await sandbox.commands.run("python3 -m http.server 8090 -d /home/user", { background: true });
    const headers = { "x-svc-sandbox-id": sandbox.sandboxId, "x-svc-target-port": "8090" };
    const file = await until("the server inside", async () => {
      const response = await fetch(`${gateway.url}/proxy/a.txt`, { headers });
      return response.status === 200 ? await response.text() : undefined;
    });
    assert.equal(file, "through the gateway");
    const listed = await Sandbox.list({ ...connection, query: { metadata: { purpose: "gateway" } } }).nextItems();
    assert.deepEqual(
      listed.map(({ sandboxId }) => sandboxId),
      [sandbox.sandboxId],
    );
    assert.equal(await sandbox.isRunning(), true);
    assert.equal(await sandbox.kill(), true);
    assert.equal(await sandbox.isRunning(), false);
  });

  void test("a snapshot can be started as soon as the call that creates it has returned", async () => {
    const { gateway } = deployment;
    const { sandboxID } = await gateway.call(createSandbox, { templateID: "base" });
    for (let round = 0; round < 8; round++) {
      const { snapshotID } = await gateway.call(createSnapshot, { sandboxID, memory: false });
      const copy = await gateway.call(createSandbox, { templateID: snapshotID });
      await gateway.call(deleteSandbox, { sandboxID: copy.sandboxID });
      await gateway.call(deleteTemplate, { templateID: snapshotID });
    }
    await gateway.call(deleteSandbox, { sandboxID });
  });

  void test("getHost() without a configured domain is localhost with the port of a gateway", async () => {
    const { gateway, gateways } = deployment;
    const connection = { apiUrl: gateway.url, sandboxUrl: gateway.url, apiKey: gateway.apiKey };
    const sandbox = await Sandbox.create("base", connection);
    const hosts = gateways.map(({ port }) => `8123-${sandbox.sandboxId}.localhost:${port}`);
    assert.ok(hosts.includes(sandbox.getHost(8123)), `${sandbox.getHost(8123)}, not one of ${hosts.join(", ")}`);
    await sandbox.kill();
  });

  void test("templates that every node holds are listed once", async () => {
    const { gateway, nodes } = deployment;
    const own = ((await nodes[0]?.call(listTemplates, {})) ?? []).map(({ templateID }) => templateID).sort();
    assert.deepEqual((await gateway.call(listTemplates, {})).map(({ templateID }) => templateID).sort(), own);
    assert.deepEqual((await gateway.call(listTemplatesV2, {})).map(({ templateID }) => templateID).sort(), own);
  });

  void test("GET /nodes shows each node with its counts and load, GET /nodes/{id} also its sandboxes", async () => {
    const { gateway, nodes } = deployment;
    const { sandboxID } = await gateway.call(createSandbox, { templateID: "base" });
    const listed = await gateway.call(listNodes, {});
    assert.deepEqual(listed.map(({ url }) => url).sort(), nodes.map(({ url }) => url).sort());
    assert.deepEqual(
      listed.map(({ status }) => status),
      ["ready", "ready"],
    );
    const holder = await until("the node that holds it", async () => (await gateway.call(listNodes, {})).find(({ sandboxCount }) => sandboxCount === 1));
    const shown = await gateway.call(getNode, { nodeID: holder.id });
    assert.deepEqual(
      shown.sandboxes.map((each) => each.sandboxID),
      [sandboxID],
    );
    await gateway.call(deleteSandbox, { sandboxID });
    await assert.rejects(gateway.call(getNode, { nodeID: "nobody" }), { name: "NODE_NOT_FOUND" });
  });

  void test("the nodes that the load needs are counted, and a drained node does not count as capacity", async () => {
    const { gateway } = deployment;
    const scaling = await gateway.call(getScaling, {});
    // The memory that neighbours of a test use counts as well, so only the bounds are certain.
    assert.ok(scaling.wanted >= 1 && scaling.serving === 2, JSON.stringify(scaling));
    assert.deepEqual(Object.keys(scaling.by), ["sandboxes", "promised_memory", "used_memory", "waiting_creates"]);
    assert.equal(scaling.drain.length, Math.max(0, 2 - scaling.wanted));
    const [{ id = "" } = {}] = await gateway.call(listNodes, {});
    await gateway.call(setNodeStatus, { nodeID: id, status: "draining" });
    const drained = await until("one serves", async () => {
      const found = await gateway.call(getScaling, {});
      return found.serving === 1 ? found : undefined;
    });
    assert.ok(!drained.drain.includes(id), "what drains already is not named again");
    await gateway.call(setNodeStatus, { nodeID: id, status: "ready" });
    await allUp(gateway);
  });

  void test("two gateways are equal: a sandbox created by one is served by the other at once, and a restart loses nothing", async () => {
    const { gateway } = deployment;
    const second = deployment.gateways[1] ?? gateway;
    const { sandboxID } = await gateway.call(createSandbox, { templateID: "base" });
    assert.equal((await second.call(getSandbox, { sandboxID })).sandboxID, sandboxID);
    await gateway.restart("SIGKILL");
    await allUp(gateway);
    assert.equal((await gateway.call(getSandbox, { sandboxID })).sandboxID, sandboxID);
    await second.call(deleteSandbox, { sandboxID });
    await assert.rejects(gateway.call(getSandbox, { sandboxID }), { name: "SANDBOX_NOT_FOUND" });
  });

  void test("the events of all nodes are one stream with each event once, and another gateway resumes it at the same position", async () => {
    const { gateways } = deployment;
    const clients = gateways.map(({ url, apiKey }) => new SvcClient({ baseURL: url, apiKey }));
    const [here, there] = [clients[0] as SvcClient, clients[1] as SvcClient];
    const created = await Promise.all(Array.from({ length: 4 }, () => here.create({ templateID: "base" })));
    const ids = created.map(({ sandboxID }) => sandboxID).sort();
    const kept = [];
    for await (const event of here.events({ since: 0, follow: false, types: ["sandbox.created"] })) if (ids.includes(event.sandboxID ?? "")) kept.push(event);
    assert.deepEqual(kept.map(({ sandboxID }) => sandboxID).sort(), ids);

    const cursor = await firstCursor(`${gateways[0]?.url}/events`, gateways[0]?.apiKey ?? "");
    assert.match(cursor, /^node-[0-9a-f]{12}:\d+\.node-[0-9a-f]{12}:\d+$/);
    for (const sandboxID of ids) await here.delete(sandboxID);
    const ended: string[] = [];
    for await (const event of there.events({ since: cursor, types: ["sandbox.ended"] })) {
      ended.push(event.sandboxID ?? "");
      if (ended.length === ids.length) break;
    }
    assert.deepEqual(ended.sort(), ids);
    const answer = await fetch(`${gateways[0]?.url}/events?after=17`, { headers: { "x-api-key": gateways[0]?.apiKey ?? "" } });
    assert.equal(answer.status, 400);
  });

  void test("metrics are served only on their own listener, without a key", async () => {
    const { gateway } = deployment;
    assert.equal((await fetch(`${gateway.url}/metrics`)).status, 401);
    assert.equal((await fetch(`${gateway.url}/metrics`, { headers: { "x-api-key": gateway.apiKey } })).status, 404);
    const text = await (await fetch(`${gateway.metricsURL}/metrics`)).text();
    assert.match(text, /^svc_gateway_nodes\{state="up"\} 2$/m);
    assert.equal((await fetch(`${gateway.url}/health`)).status, 204);
  });
});

/** Returns the cursor at which a stream that is opened now begins. */
async function firstCursor(url: string, apiKey: string): Promise<string> {
  const response = await fetch(url, { headers: { "x-api-key": apiKey } });
  let text = "";
  for await (const chunk of response.body ?? []) {
    text += Buffer.from(chunk).toString();
    const found = /^id: (\S+)$/m.exec(text)?.[1];
    // Leaving the loop ends the stream.
    if (found !== undefined) return found;
  }
  throw new Error("the stream ended before it began");
}
