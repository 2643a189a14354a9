// Nodes that join a deployment: slots in ids, secrets that must agree, and a standalone node that brings its sandboxes.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { deploymentRecord, slotOf } from "@svc/contract/cluster-records.ts";
import { createSnapshot, pauseSandbox, resumeSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { DEPLOYMENT_KEY, DEPLOYMENT_SEED, startDeployment } from "../src/deployment.ts";
import { makeHome, removeHome } from "../src/home.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";

const host = needs("root", "runsc", "envd", "base", "etcd");

const connected = (node: TestNode, sandboxID: string) => Sandbox.connect(sandboxID, { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });
const run = async (node: TestNode, sandboxID: string, command: string) => (await (await connected(node, sandboxID)).commands.run(command)).stdout.trim();

void test("ids contain the slot of their node, which keeps it across restarts while its generation grows", host, async () => {
  await using deployment = await startDeployment();
  await using one = await deployment.start();
  await using two = await deployment.start();
  const records = [one, two].map(({ url }) => deployment.nodeAt(url, "serves", ({ state }) => state === "serving"));
  const [first, second] = await Promise.all(records);
  assert.deepEqual([first?.slot, first?.generation, second?.slot], [0, 1, 1]);
  for (const [node, slot] of [
    [one, 0],
    [two, 1],
  ] as const) {
    const { sandboxID } = await node.call(createSandbox, { templateID: "base" });
    assert.deepEqual([slotOf(sandboxID), sandboxID.length], [slot, 24]);
    assert.equal(await run(node, sandboxID, "hostname"), sandboxID);
  }
  await two.restart("SIGKILL");
  const again = await deployment.nodeAt(two.url, "began anew", ({ generation }) => generation === 2);
  assert.deepEqual([again.slot, again.state, (await deployment.lives()).length], [1, "serving", 2]);
  await two.kill("SIGTERM");
  await deployment.nodeAt(two.url, "says that it stopped", ({ state }) => state === "stopped");
  assert.deepEqual(
    (await deployment.lives()).map(({ nodeID }) => nodeID),
    [first?.nodeID],
  );
});

void test("a node with another API key or seed than the live ones is refused, and both fingerprints are named", host, async () => {
  await using deployment = await startDeployment();
  await using node = await deployment.start();
  await deployment.nodeAt(node.url, "serves", ({ state }) => state === "serving");
  const [live] = await deployment.lives();
  const refused = async (env: Record<string, string>, what: RegExp, known: string | undefined) =>
    assert.rejects(deployment.start({ env }), (error: Error) => {
      assert.match(error.message, what);
      assert.ok(known !== undefined && error.message.includes(`fingerprint ${known}`), error.message);
      return true;
    });
  await refused(
    { SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: "t".repeat(40) },
    /the token seed of this node \(fingerprint [0-9a-f]{16}\) is not that of node /,
    live?.fingerprints.seed,
  );
  await refused({ SVC_API_KEY: "x".repeat(40) }, /the API key of this node \(fingerprint [0-9a-f]{16}\) is not the deployment's/, live?.fingerprints.apiKey);
  assert.equal((await deployment.lives()).length, 1);
});

void test("if the secret is a file, a node with another key is refused with both fingerprints, and so is one with another file", host, async () => {
  await using deployment = await startDeployment();
  const folder = makeHome();
  const [given, other] = [join(folder, "given"), join(folder, "other")];
  writeFileSync(given, "g".repeat(40));
  writeFileSync(other, "o".repeat(40));
  const flags = [`--node.deployment_secret_file=${given}`];
  {
    await using node = await deployment.start({ flags });
    await deployment.nodeAt(node.url, "serves", ({ state }) => state === "serving");
    const record = deploymentRecord.parse(JSON.parse((await deployment.etcd.get(deployment.keys.deployment))?.value ?? ""));
    assert.equal(record.sealed, undefined);
    const [live] = await deployment.lives();
    await assert.rejects(deployment.start({ flags, env: { SVC_API_KEY: "x".repeat(40) } }), (error: Error) => {
      assert.match(error.message, /the API key of this node \(fingerprint [0-9a-f]{16}\) is not that of node /);
      assert.ok(error.message.includes(`fingerprint ${live?.fingerprints.apiKey}`));
      return true;
    });
    await assert.rejects(deployment.start({ flags: [`--node.deployment_secret_file=${other}`] }), /fingerprint is [0-9a-f]{16}, expected [0-9a-f]{16}/);
    await assert.rejects(deployment.start(), /secret comes from a file .*set node.deployment_secret_file to that file/);
  }
  removeHome(folder);
});

void test("a standalone node joins with all its sandboxes, and others store the key that they require", host, async () => {
  await using deployment = await startDeployment();
  await using other = await deployment.start();
  const home = makeHome();
  {
    const secrets = { SVC_API_KEY: DEPLOYMENT_KEY, SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: DEPLOYMENT_SEED };
    await using node = await startNode({ home, runtime: "gvisor", env: secrets });
    const [live, paused] = await Promise.all([1, 2].map(async () => (await node.call(createSandbox, { templateID: "base", timeout: 3600 })).sandboxID));
    assert.ok(live !== undefined && paused !== undefined);
    assert.deepEqual([slotOf(live), live.length], [undefined, 20]);
    await run(node, live, "echo mine > kept");
    const { snapshotID } = await node.call(createSnapshot, { sandboxID: live });
    await run(node, paused, "echo mine > kept");
    await node.call(pauseSandbox, { sandboxID: paused });
    const keysOf = (folder: string) => readdirSync(join(folder, "secrets/envd-init-keys"));
    const own = keysOf(home);
    await node.restart("SIGTERM", { flags: deployment.options().flags ?? [] });
    assert.equal(await run(node, live, "cat kept"), "mine");
    await node.call(resumeSandbox, { sandboxID: paused, timeout: 600 });
    assert.equal(await run(node, paused, "cat kept"), "mine");
    const { sandboxID } = await node.call(createSandbox, { templateID: snapshotID });
    assert.deepEqual([await run(node, sandboxID, "cat kept"), slotOf(sandboxID)], ["mine", 1]);
    assert.equal(keysOf(home).length, 2);
    // The other node learns of it from its watch.
    await deployment.nodeAt(node.url, "serves", ({ state }) => state === "serving");
    const { until } = await import("../src/until.ts");
    await until("the other node holds the key", () => (own.every((name) => keysOf(other.home).includes(name)) ? true : undefined));
  }
  removeHome(home);
});

void test("after a change of API key and seed on all nodes, they join again, the secret is sealed again, and paused sandboxes continue", host, async () => {
  await using deployment = await startDeployment();
  await using one = await deployment.start();
  await using two = await deployment.start();
  const { sandboxID } = await one.call(createSandbox, { templateID: "base", timeout: 3600 });
  const live = await two.call(createSandbox, { templateID: "base", timeout: 3600 });
  await run(one, sandboxID, "echo mine > kept");
  await one.call(pauseSandbox, { sandboxID });
  const keysBefore = readdirSync(join(one.home, "secrets/envd-init-keys"));
  const sealedBefore = (await deployment.etcd.get(deployment.keys.deployment))?.value;
  await Promise.all([one.kill("SIGTERM"), two.kill("SIGTERM")]);
  const changed = { SVC_API_KEY: "n".repeat(40), SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: "m".repeat(40) };
  await one.start({ env: changed });
  await two.start({ env: changed });
  const connect = (node: TestNode, id: string) => Sandbox.connect(id, { apiUrl: node.url, sandboxUrl: node.url, apiKey: changed.SVC_API_KEY });
  assert.equal((await (await connect(one, sandboxID)).commands.run("cat kept")).stdout.trim(), "mine");
  assert.equal((await (await connect(two, live.sandboxID)).commands.run("echo on")).stdout.trim(), "on");
  assert.deepEqual(readdirSync(join(one.home, "secrets/envd-init-keys")), keysBefore);
  assert.notEqual((await deployment.etcd.get(deployment.keys.deployment))?.value, sealedBefore);
  assert.equal((await deployment.lives()).length, 2);
  const secretOf = (node: TestNode) => readFileSync(join(node.home, "secrets/deployment-secret"), "utf8");
  assert.equal(secretOf(one), secretOf(two));
  await assert.rejects(one.call(getSandbox, { sandboxID }), { name: "UNAUTHENTICATED" });
});
