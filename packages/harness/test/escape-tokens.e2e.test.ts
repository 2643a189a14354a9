// Tokens and identities on gVisor: those inside a sandbox or its copies open nothing else, and cannot be replaced from inside.
import assert from "node:assert/strict";
import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { ENVD_PORT } from "@svc/contract/envd-http.ts";
import type { SandboxAnswer } from "@svc/contract/fields.ts";
import { connectSandbox, createSnapshot, forkSandbox, pauseSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";

void describe("tokens of sandboxes and their copies on gvisor", needs("root", "runsc", "envd", "base"), () => {
  let node: TestNode;
  const connection = () => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });
  const create = () => Sandbox.create("base", { ...connection(), timeoutMs: 600_000 });
  const tokenOf = async (sandboxID: string) => (await node.call(getSandbox, { sandboxID })).envdAccessToken ?? assert.fail("no token");
  const statusOf = async (sandboxID: string, token: string) => {
    const headers = { "x-svc-sandbox-id": sandboxID, "x-svc-target-port": String(ENVD_PORT), "x-access-token": token };
    return (await fetch(`${node.url}/files?path=/etc/hostname`, { headers })).status;
  };
  const asked = async (sandbox: Sandbox, path: string, headers: Record<string, string> = {}, body = "{}") => {
    const flags = Object.entries(headers).map(([name, value]) => `-H '${name}: ${value}'`);
    const command = `curl -s -o /dev/null -w '%{http_code}' -X POST ${flags.join(" ")} -d '${body}' http://127.0.0.1:${ENVD_PORT}${path}`;
    return (await sandbox.commands.run(command, { user: "root" })).stdout;
  };

  before(async () => {
    node = await startNode({ runtime: "gvisor" });
  });
  after(() => node[Symbol.asyncDispose]());

  void test("code inside cannot give its envd another identity: not unsigned, not with its own key, not with the correct token", async () => {
    const sandbox = await create();
    const token = await tokenOf(sandbox.sandboxId);
    const body = JSON.stringify({ accessToken: "mine", hostname: "mine", envVars: { MINE: "yes" } });
    const nonce = String(BigInt(Date.now() + 1_000_000) * 1_000_000n);
    const { privateKey } = generateKeyPairSync("ed25519");
    const forged = sign(null, Buffer.from(`svc-init\n${nonce}\n${createHash("sha256").update(body).digest("hex")}`), privateKey).toString("base64");
    const attempts: Record<string, string>[] = [
      {},
      { "x-access-token": token },
      { "x-svc-init-nonce": nonce },
      { "x-svc-init-nonce": nonce, "x-svc-init-signature": "" },
      { "x-svc-init-nonce": nonce, "x-svc-init-signature": "AAAA" },
      { "x-svc-init-nonce": nonce, "x-svc-init-signature": Buffer.alloc(64).toString("base64") },
      { "x-svc-init-nonce": nonce, "x-svc-init-signature": forged, "x-access-token": token },
    ];
    for (const headers of attempts) assert.equal(await asked(sandbox, "/init", headers, body), "401", JSON.stringify(headers));
    assert.equal(await statusOf(sandbox.sandboxId, token), 200);
    assert.equal(await statusOf(sandbox.sandboxId, "mine"), 401);
    assert.equal((await sandbox.commands.run("hostname; echo $MINE")).stdout, `${sandbox.sandboxId}\n\n`);
    // A refused attempt has not used up the nonces, so the node's next message is accepted.
    await sandbox.pause();
    await Sandbox.connect(sandbox.sandboxId, connection());
    assert.equal((await sandbox.commands.run("hostname")).stdout, `${sandbox.sandboxId}\n`);
  });

  void test("code inside cannot use its envd without the sandbox's token, which is not in its environment", async () => {
    const sandbox = await create();
    for (const path of ["/process.Process/List", "/filesystem.Filesystem/Stat", "/files?path=/etc/passwd"])
      assert.equal(await asked(sandbox, path, { "content-type": "application/json" }), "401", path);
    assert.ok(!(await sandbox.commands.run("env; cat /proc/1/environ | tr '\\0' '\\n'", { user: "root" })).stdout.includes(await tokenOf(sandbox.sandboxId)));
  });

  void test("a source's token opens no copy, and a copy's neither its source nor a sibling, through the node and from inside", async () => {
    const source = await create();
    const forks = await node.call(forkSandbox, { sandboxID: source.sandboxId, count: 2 });
    const { snapshotID } = await node.call(createSnapshot, { sandboxID: source.sandboxId });
    const copy: SandboxAnswer = await node.call(createSandbox, { templateID: snapshotID });
    const ids = [source.sandboxId, ...forks.map((fork) => ("sandbox" in fork ? fork.sandbox.sandboxID : assert.fail(fork.error.message))), copy.sandboxID];
    const tokens = await Promise.all(ids.map(tokenOf));
    assert.equal(new Set(tokens).size, ids.length);
    for (const [at, sandboxID] of ids.entries()) {
      for (const [of, token] of tokens.entries()) {
        assert.equal(await statusOf(sandboxID, token), at === of ? 200 : 401, `token of ${of} at ${at}`);
        // This bypasses the proxy, which checks tokens itself: envd inside must check its own, too.
        const inside = await Sandbox.connect(sandboxID, connection());
        const status = await asked(inside, "/process.Process/List", { "content-type": "application/json", "x-access-token": token });
        assert.equal(status, at === of ? "200" : "401", `token of ${of} inside ${at}`);
      }
    }
  });

  void test("after a change of the seed old tokens open nothing, neither running, paused and resumed, nor forked sandboxes", async () => {
    const [running, paused] = await Promise.all([create(), create()]);
    const [fork] = await node.call(forkSandbox, { sandboxID: running.sandboxId });
    assert.ok(fork !== undefined && "sandbox" in fork);
    const ids = [running.sandboxId, fork.sandbox.sandboxID, paused.sandboxId];
    const old = await Promise.all(ids.map(tokenOf));
    await node.call(pauseSandbox, { sandboxID: paused.sandboxId });
    await node.restart("SIGKILL", { env: { SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: "another-seed-".repeat(5) } });
    await node.call(connectSandbox, { sandboxID: paused.sandboxId });
    for (const [at, sandboxID] of ids.entries()) {
      const token = await tokenOf(sandboxID);
      assert.notEqual(token, old[at]);
      assert.deepEqual([await statusOf(sandboxID, old[at] ?? ""), await statusOf(sandboxID, token)], [401, 200]);
      const inside = await Sandbox.connect(sandboxID, connection());
      const json = { "content-type": "application/json" };
      assert.equal(await asked(inside, "/process.Process/List", { ...json, "x-access-token": old[at] ?? "" }), "401");
    }
  });
});
