// Sandboxes that move between nodes of a deployment: on request, by a drain, and after the death of their node.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { connectSandbox, moveSandbox, pauseSandbox, resumeSandbox } from "@svc/contract/lifecycle.ts";
import { getNodeDrain, removeNode, setNodeStatus } from "@svc/contract/node-control.ts";
import { listNodes } from "@svc/contract/nodes.ts";
import { createSandbox, deleteSandbox, getSandbox, listSandboxesV1 } from "@svc/contract/sandbox.ts";
import { type SharedSandbox, sandboxRecord } from "@svc/contract/shared-records.ts";
import { Sandbox } from "e2b";
import { DEPLOYMENT_KEY, type Deployment, startDeployment } from "../src/deployment.ts";
import { freeze } from "../src/freeze.ts";
import { startGateway, type TestGateway } from "../src/gateway.ts";
import { needs } from "../src/needs.ts";
import type { TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

type Place = { readonly url: string; readonly apiKey: string };

async function run({ url, apiKey }: Place, sandboxID: string, command: string): Promise<string> {
  const sandbox = await Sandbox.connect(sandboxID, { apiUrl: url, sandboxUrl: url, apiKey });
  return (await sandbox.commands.run(command)).stdout.trim();
}
const has = async (node: TestNode, sandboxID: string) => (await node.call(listSandboxesV1, {})).some((each) => each.sandboxID === sandboxID);

void describe("sandboxes that move between nodes", needs("root", "runsc", "envd", "base", "etcd", "xxh128sum"), () => {
  let folder: string;
  let deployment: Deployment;
  let gateway: TestGateway;
  let nodes: [TestNode, TestNode];

  const recordOf = async (sandboxID: string): Promise<SharedSandbox | undefined> => {
    const kept = await deployment.etcd.get(deployment.keys.sandbox(sandboxID));
    return kept === undefined ? undefined : sandboxRecord.parse(JSON.parse(kept.value));
  };
  const shared = (sandboxID: string) => until("it is shared", async () => ((await recordOf(sandboxID))?.manifest === undefined ? undefined : true));
  /** Waits until the sandbox is offered. If the move ends before that is seen, later requests do not overlap with it. */
  const offeredOrMoved = (sandboxID: string, move: Promise<unknown>) => {
    const over = move.then(Boolean, Boolean);
    return until(
      "it is offered",
      async () => (await recordOf(sandboxID))?.isOffered === true || (await Promise.race([over, sleep(5)])) !== undefined || undefined,
    );
  };
  const goesOn = (sandboxID: string) =>
    until("it goes on", () =>
      run(gateway, sandboxID, "cat kept").then(
        (text) => (text === "mine" ? true : undefined),
        () => undefined,
      ),
    );
  const idOf = async ({ url }: TestNode) => (await deployment.nodeAt(url, "serves", ({ state }) => state === "serving")).nodeID;
  const allReady = () =>
    until("both nodes", async () => {
      const listed = await gateway.call(listNodes, {});
      return listed.length === 2 && listed.every(({ status }) => status === "ready") ? true : undefined;
    });
  const create = async (node: TestNode) =>
    (await node.call(createSandbox, { templateID: "base", timeout: 3600, autoPause: true, autoResume: { enabled: true } })).sandboxID;
  const fetched = async ({ url }: TestNode, direction: "peer" | "fetched") => {
    const metrics = await (await fetch(`${url}/metrics`)).text();
    return Number(new RegExp(`^svc_node_snapshot_transfer_chunks_total\\{[^}]*direction="${direction}"[^}]*\\} (\\d+)`, "m").exec(metrics)?.[1] ?? 0);
  };
  const withKey = async (idempotencyKey: string) => (await gateway.call(createSandbox, { templateID: "base", timeout: 3600, idempotencyKey })).sandboxID;
  /** Returns a key that chose this node, and the sandbox that it created. */
  async function keyedOn(node: TestNode): Promise<[string, string]> {
    for (let at = 0; ; at++) {
      const sandboxID = await withKey(`led-${at}`);
      if (await has(node, sandboxID)) return [`led-${at}`, sandboxID];
      await gateway.call(deleteSandbox, { sandboxID });
    }
  }

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "svc-moves-"));
    deployment = await startDeployment(10, 2);
    const flags = [`--objects.url=file://${folder}`];
    nodes = [await deployment.start({ flags }), await deployment.start({ flags })];
    gateway = await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY });
    await allReady();
  });
  after(async () => {
    await gateway?.[Symbol.asyncDispose]();
    for (const node of nodes ?? []) await node[Symbol.asyncDispose]();
    await deployment?.[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
  });

  void test("a live sandbox is moved with its memory and files, and the time it was stopped is reported by stage", async () => {
    const [from, to] = nodes;
    const sandboxID = await create(from);
    await run(gateway, sandboxID, "echo mine > kept; cat /proc/sys/kernel/random/boot_id > boot");
    const moved = await gateway.call(moveSandbox, { sandboxID, nodeID: await idOf(to) });
    assert.deepEqual([moved.state, moved.fromNodeID, moved.nodeID], ["running", await idOf(from), await idOf(to)]);
    const { pauseMs, exportMs, importMs, resumeMs, otherMs, stoodStillMs } = moved;
    assert.equal(pauseMs + exportMs + importMs + resumeMs + otherMs, stoodStillMs);
    assert.equal(await run(gateway, sandboxID, "cat kept; cmp boot /proc/sys/kernel/random/boot_id && echo same"), "mine\nsame");
    assert.deepEqual([await has(from, sandboxID), await has(to, sandboxID)], [false, true]);
    // Its memory came from the source node; its base layers were already present.
    assert.ok((await fetched(to, "peer")) > 0);
    await assert.rejects(from.call(getSandbox, { sandboxID }), { name: "SANDBOX_MOVED", message: /moved to node/ });
    // A running sandbox may not be taken by another node.
    assert.deepEqual([(await recordOf(sandboxID))?.nodeID, (await recordOf(sandboxID))?.manifest], [await idOf(to), undefined]);

    // A restarted gateway knows the new location, and so do both nodes after a restart.
    await gateway.restart("SIGKILL");
    await from.restart("SIGKILL");
    await to.restart("SIGKILL");
    await allReady();
    assert.equal(await run(gateway, sandboxID, "cat kept"), "mine");
    const back = await gateway.call(moveSandbox, { sandboxID });
    assert.equal(back.nodeID, await idOf(from));
    assert.equal(await run(gateway, sandboxID, "cat kept"), "mine");
    await gateway.call(deleteSandbox, { sandboxID });
    await until("its record to go", async () => ((await recordOf(sandboxID)) === undefined ? true : undefined));
  });

  void test("requests during a move reach a running sandbox, and a pause applies to the moved one", async () => {
    const [from, to] = nodes;
    const { sandboxID, envdAccessToken = "" } = await from.call(createSandbox, { templateID: "base", timeout: 3600 });
    await until("the gateway knows it", () => gateway.call(getSandbox, { sandboxID }).catch(() => undefined));
    let isOver = false;
    const moving = gateway.call(moveSandbox, { sandboxID, nodeID: await idOf(to) }).finally(() => void (isOver = true));
    const health = async () => {
      const response = await fetch(`${gateway.url}/health`, {
        headers: { "e2b-sandbox-id": sandboxID, "e2b-sandbox-port": "49983", "x-access-token": envdAccessToken },
      });
      return `${response.status} ${response.headers.get("x-svc-reason") ?? ""} ${await response.text()}`;
    };
    const answers: Promise<string>[] = [];
    for (; !isOver; await sleep(20)) answers.push(health());
    assert.equal((await moving).state, "running");
    assert.deepEqual([...new Set(await Promise.all(answers))], ["204  "]);

    const back = gateway.call(moveSandbox, { sandboxID, nodeID: await idOf(from) });
    await offeredOrMoved(sandboxID, back);
    await gateway.call(pauseSandbox, { sandboxID });
    assert.equal((await back).state, "running");
    assert.equal((await gateway.call(getSandbox, { sandboxID })).state, "paused");
    await gateway.call(deleteSandbox, { sandboxID });

    // A delete also waits for the move; afterwards the sandbox has ended, rather than moved.
    const short = await create(from);
    const last = gateway.call(moveSandbox, { sandboxID: short, nodeID: await idOf(to) });
    await offeredOrMoved(short, last);
    await gateway.call(deleteSandbox, { sandboxID: short });
    await last;
    await until("both nodes have said so", async () =>
      gateway.call(getSandbox, { sandboxID: short }).then(
        () => undefined,
        ({ name }: Error) => (name === "SANDBOX_NOT_FOUND" ? true : undefined),
      ),
    );
  });

  void test("a sandbox that is paused and moved at once is moved, and is paused on the target", async () => {
    const [from, to] = nodes;
    const sandboxID = await create(from);
    await run(gateway, sandboxID, "echo mine > kept");
    let [at, next] = [from, to];
    // Either request may come first, at the node and at the gateway.
    for (const first of ["pause", "move", "pause"]) {
      const pause = () => gateway.call(pauseSandbox, { sandboxID });
      const move = async () => gateway.call(moveSandbox, { sandboxID, nodeID: await idOf(next) });
      const [moved] = first === "pause" ? (await Promise.all([pause(), move()])).slice(1) : await Promise.all([move(), pause()]);
      assert.equal(moved?.nodeID, await idOf(next));
      assert.equal(await has(next, sandboxID), true);
      assert.equal((await gateway.call(getSandbox, { sandboxID })).state, "paused");
      assert.equal(await run(gateway, sandboxID, "cat kept"), "mine");
      [at, next] = [next, at];
    }
    await gateway.call(deleteSandbox, { sandboxID });
  });

  void test("a move that is impossible leaves the sandbox running on its node", async () => {
    const [from, to] = nodes;
    const sandboxID = await create(from);
    await run(gateway, sandboxID, "echo mine > kept");
    await assert.rejects(gateway.call(moveSandbox, { sandboxID, nodeID: "node-unknown" }), { name: "NODE_NOT_FOUND" });
    await assert.rejects(gateway.call(moveSandbox, { sandboxID, nodeID: await idOf(from) }), { name: "INVALID_REQUEST", message: /already/ });
    // If the misspelt member were ignored, the sandbox would move to an arbitrary node.
    const headers = { "x-api-key": DEPLOYMENT_KEY, "content-type": "application/json" };
    const misspelt = await fetch(`${gateway.url}/sandboxes/${sandboxID}/move`, { method: "POST", headers, body: JSON.stringify({ nodeId: await idOf(to) }) });
    const { message } = (await misspelt.json()) as { message: string };
    assert.deepEqual([misspelt.status, message.includes("nodeId")], [400, true], message);
    assert.equal(await has(from, sandboxID), true);
    await freeze(to.pid);
    const moving = gateway.call(moveSandbox, { sandboxID, nodeID: await idOf(to) }).then(
      () => "moved",
      (error: Error) => error.name,
    );
    await until("it is offered", async () => ((await recordOf(sandboxID))?.isOffered === true ? true : undefined));
    const waiting = run(gateway, sandboxID, "cat kept");
    await to.kill("SIGKILL");
    assert.equal(await moving, "SERVER_UNREACHABLE");
    assert.equal(await waiting, "mine");
    assert.equal(await has(from, sandboxID), true);
    await to.start();
    await allReady();
    await gateway.call(deleteSandbox, { sandboxID });
  });

  void test("a drain moves paused sandboxes to other nodes, and their clients find them unchanged", async () => {
    const [from, to] = nodes;
    const [busy, sleeping] = [await create(from), await create(from)];
    for (const sandboxID of [busy, sleeping]) await run(gateway, sandboxID, `echo ${sandboxID} > kept`);
    await gateway.call(pauseSandbox, { sandboxID: sleeping });
    const nodeID = await idOf(from);
    const sandbox = await Sandbox.connect(busy, { apiUrl: gateway.url, sandboxUrl: gateway.url, apiKey: DEPLOYMENT_KEY });
    await gateway.call(setNodeStatus, { nodeID, status: "draining" });
    // Commands meet the pause, the move or the new node; none of them may report that the sandbox is gone.
    const said = await until("a command", () =>
      sandbox.commands.run("cat kept").then(
        ({ stdout }) => stdout.trim(),
        (error: Error) => {
          assert.doesNotMatch(error.message, /was not found|port is not open/);
          return undefined;
        },
      ),
    );
    assert.equal(said, busy);
    const { movedByDrain } = await until("nothing is left", async () => {
      const drain = await gateway.call(getNodeDrain, { nodeID });
      return drain.handsOver && drain.running + drain.paused === 0 ? drain : undefined;
    });
    // The busy sandbox may have moved because of the command.
    assert.deepEqual(
      movedByDrain.filter(({ sandboxID }) => sandboxID === sleeping),
      [{ sandboxID: sleeping, nodeID: await idOf(to) }],
    );
    assert.deepEqual([await has(to, busy), await has(to, sleeping)], [true, true]);
    assert.equal(await run(gateway, sleeping, "cat kept"), sleeping);
    await gateway.call(setNodeStatus, { nodeID, status: "ready" });
    await allReady();
    for (const sandboxID of [busy, sleeping]) await gateway.call(deleteSandbox, { sandboxID });
  });

  void test("after the death of a node exported paused sandboxes continue elsewhere, running ones are lost, and the returning node has neither", async () => {
    const [from, to] = nodes;
    const [paused, running] = [await create(from), await create(from)];
    for (const sandboxID of [paused, running]) await run(gateway, sandboxID, "echo mine > kept");
    await gateway.call(pauseSandbox, { sandboxID: paused });
    await shared(paused);
    const [lostKey, lostID] = await keyedOn(from);
    await from.kill("SIGKILL");
    await assert.rejects(to.call(connectSandbox, { sandboxID: paused }), { name: "SANDBOX_NOT_FOUND" });
    await until("the loss is seen", async () => (await gateway.call(listNodes, {})).some(({ status }) => status === "unhealthy") || undefined);
    // A gateway holds the first request until it runs elsewhere: no client waits until the node is declared dead.
    await gateway.call(connectSandbox, { sandboxID: paused });
    await deployment.nodeAt(from.url, "is dead", ({ state }) => state === "dead");
    assert.equal(await has(to, paused), true);
    await assert.rejects(gateway.call(getSandbox, { sandboxID: running }), { name: "NODE_LOST" });
    // The running sandboxes are lost for good, so their keys, and keys that would choose that node, create new ones.
    const again = await withKey(lostKey);
    assert.notEqual(again, lostID);
    const fresh = await Promise.all(Array.from({ length: 6 }, (_, at) => withKey(`fresh-${at}`)));
    await from.start();
    await allReady();
    assert.deepEqual([await has(from, paused), await has(to, paused)], [false, true]);
    await assert.rejects(from.call(resumeSandbox, { sandboxID: paused, timeout: 60 }), { name: "SANDBOX_MOVED" });
    await assert.rejects(gateway.call(getSandbox, { sandboxID: running }), { name: "SANDBOX_NOT_FOUND", message: /node_lost/ });
    assert.equal(await run(gateway, paused, "cat kept"), "mine");
    assert.equal(await withKey(lostKey), again);
    await Promise.all([paused, again, ...fresh].map((sandboxID) => gateway.call(deleteSandbox, { sandboxID })));
  });

  void test("a paused sandbox of a removed dead node is shown while etcd is away, 503 says why it cannot run, and later it continues elsewhere", async () => {
    const [from, to] = nodes;
    const sandboxID = await create(from);
    await run(gateway, sandboxID, "echo mine > kept");
    await gateway.call(pauseSandbox, { sandboxID });
    await shared(sandboxID);
    const nodeID = await idOf(from);
    await from.kill("SIGKILL");
    await until("removed", () => to.call(removeNode, { nodeID, dead: true }).then(() => true));
    await until("the gateway knows", async () => ((await gateway.call(listNodes, {})).length === 1 ? true : undefined));
    const [etcd] = deployment.server.members;
    await etcd?.kill();
    const detail = await gateway.call(getSandbox, { sandboxID });
    assert.deepEqual([detail.sandboxID, detail.state, detail.pauseMode], [sandboxID, "paused", "full"]);
    assert.equal(await has(to, sandboxID), false);
    const refused = () => fetch(`${gateway.url}/health`, { headers: { "x-svc-sandbox-id": sandboxID, "x-svc-target-port": "49983" } });
    // We ask twice, because the second request comes while the first failure is cached.
    for (const response of [await refused(), await refused()]) {
      assert.deepEqual([response.status, Number(response.headers.get("retry-after")) > 0], [503, true]);
      assert.match(await response.text(), /ETCD_UNAVAILABLE/);
    }
    await assert.rejects(gateway.call(resumeSandbox, { sandboxID, timeout: 60 }), { name: "ETCD_UNAVAILABLE" });
    await etcd?.start();

    await goesOn(sandboxID);
    await from.start();
    await allReady();
    await assert.rejects(from.call(getSandbox, { sandboxID }), { name: "SANDBOX_MOVED" });
    await gateway.call(deleteSandbox, { sandboxID });
  });
});
