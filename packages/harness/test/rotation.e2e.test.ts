// Key, seed and deployment secret change under sandboxes: what each change rotates, and that paused, kept and live ones continue.
import assert from "node:assert/strict";
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createSnapshot, forkSandbox, pauseSandbox, resumeSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";

const secret = (letter: string) => letter.repeat(32);
const host = needs("root", "runsc", "envd", "base");

/** Reads a file in the sandbox with the token that the node issues now. */
async function read(node: TestNode, sandboxID: string): Promise<string> {
  const sandbox = await Sandbox.connect(sandboxID, { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });
  return (await sandbox.commands.run("cat kept")).stdout.trim();
}

async function tokens(node: TestNode, sandboxID: string) {
  const { envdAccessToken, trafficAccessToken } = await node.call(getSandbox, { sandboxID });
  return { envdAccessToken, trafficAccessToken };
}

/** Creates a running sandbox, a paused one, and a snapshot, all with the file `kept`. */
async function populate(node: TestNode) {
  const create = async () => {
    const { sandboxID } = await node.call(createSandbox, { templateID: "base", timeout: 3600, network: { allowPublicTraffic: false } });
    const sandbox = await Sandbox.connect(sandboxID, { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });
    await sandbox.commands.run("echo before > kept");
    return sandboxID;
  };
  const live = await create();
  const paused = await create();
  const { snapshotID } = await node.call(createSnapshot, { sandboxID: paused });
  await node.call(pauseSandbox, { sandboxID: paused });
  return { live, paused, snapshotID };
}

async function goOn(node: TestNode, { live, paused, snapshotID }: Awaited<ReturnType<typeof populate>>): Promise<void> {
  assert.equal(await read(node, live), "before");
  await node.call(resumeSandbox, { sandboxID: paused, timeout: 600 });
  assert.equal(await read(node, paused), "before");
  const { sandboxID } = await node.call(createSandbox, { templateID: snapshotID });
  assert.equal(await read(node, sandboxID), "before");
  const [forked] = await node.call(forkSandbox, { sandboxID: live, count: 1 });
  assert.ok(forked !== undefined && "sandbox" in forked);
  assert.equal(await read(node, forked.sandbox.sandboxID), "before");
  // One more pause and resume uses the secrets in force now.
  await node.call(pauseSandbox, { sandboxID: paused });
  await node.call(resumeSandbox, { sandboxID: paused, timeout: 600 });
  assert.equal(await read(node, paused), "before");
}

void test("a new API key leaves all tokens unchanged, and live, paused and kept sandboxes continue", host, async () => {
  await using node = await startNode({ runtime: "gvisor" });
  const known = await populate(node);
  const before = await Promise.all([tokens(node, known.live), tokens(node, known.paused)]);
  const oldKey = node.apiKey;
  await node.kill("SIGTERM");
  writeFileSync(join(node.home, "secrets/api-key"), `sdk_${secret("n")}\n`);
  await node.start();
  assert.notEqual(node.apiKey, oldKey);
  assert.equal((await fetch(`${node.url}/sandboxes`, { headers: { "x-api-key": oldKey } })).status, 401);
  assert.deepEqual(await Promise.all([tokens(node, known.live), tokens(node, known.paused)]), before);
  await goOn(node, known);
});

void test("a new seed changes both tokens of every sandbox and nothing else: live, paused and kept sandboxes continue", host, async () => {
  await using node = await startNode({ runtime: "gvisor", env: { SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: secret("a") } });
  const known = await populate(node);
  const before = await Promise.all([tokens(node, known.live), tokens(node, known.paused)]);
  const keys = () => readdirSync(join(node.home, "secrets/envd-init-keys"));
  const keysBefore = keys();
  await node.restart("SIGTERM", { env: { SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: secret("b") } });
  const after = await Promise.all([tokens(node, known.live), tokens(node, known.paused)]);
  for (const [index, { envdAccessToken, trafficAccessToken }] of before.entries()) {
    assert.notEqual(after[index]?.envdAccessToken, envdAccessToken);
    assert.notEqual(after[index]?.trafficAccessToken, trafficAccessToken);
  }
  const old = { "x-access-token": before[0]?.envdAccessToken ?? "", "x-svc-sandbox-id": known.live, "x-svc-target-port": "49983" };
  assert.equal((await fetch(`${node.url}/proxy/files?path=/etc/hostname`, { headers: old })).status, 401);
  assert.deepEqual(keys(), keysBefore);
  await goOn(node, known);
});
