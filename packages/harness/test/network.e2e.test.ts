// Egress rules with the unmodified E2B SDK: set at create, replaced while running and while paused, kept when the node is killed.
import assert from "node:assert/strict";
import { after, before, suite, test } from "node:test";
import { setSandboxNetwork } from "@svc/contract/network.ts";
import { ALL_TRAFFIC, Sandbox } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { type Outside, publicAddresses, startOutside } from "../src/outside.ts";

const [one, eight] = publicAddresses;

suite("egress rules with the E2B SDK", needs("root", "runsc", "envd", "base", "ip", "nft", "unshare"), () => {
  let outside: Outside;
  let node: TestNode;
  let connection: { apiUrl: string; sandboxUrl: string; apiKey: string };

  before(async () => {
    outside = await startOutside();
    node = await startNode({ runtime: "gvisor" });
    connection = { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey };
  });
  after(async () => {
    await node?.[Symbol.asyncDispose]();
    await outside?.[Symbol.asyncDispose]();
  });

  const reach = async (sandbox: Sandbox): Promise<string[]> => {
    const tried = [one, eight].map((address) => `(exec 3<>/dev/tcp/${address}/80) 2>/dev/null && echo open || echo closed`);
    return (await sandbox.commands.run(tried.join("; "))).stdout.trim().split("\n");
  };

  void test("rules given at the start apply, and the sandbox's detail shows them", async () => {
    const sandbox = await Sandbox.create("base", { ...connection, timeoutMs: 600_000, network: { allowOut: [one], denyOut: [ALL_TRAFFIC] } });
    assert.deepEqual(await reach(sandbox), ["open", "closed"]);
    const { network } = await sandbox.getInfo();
    assert.deepEqual([network?.allowOut, network?.denyOut], [[one], ["0.0.0.0/0"]]);
    await sandbox.kill();
  });

  void test("rules are replaced as a whole, survive a kill -9 of the node, and an invalid one changes nothing", async () => {
    const sandbox = await Sandbox.create("base", { ...connection, timeoutMs: 600_000 });
    assert.deepEqual(await reach(sandbox), ["open", "open"]);
    await sandbox.updateNetwork({ denyOut: [`${eight}/32`] });
    assert.deepEqual(await reach(sandbox), ["open", "closed"]);
    await sandbox.updateNetwork({ allowOut: [eight], allowInternetAccess: false });
    assert.deepEqual(await reach(sandbox), ["closed", "open"]);
    await assert.rejects(
      sandbox.updateNetwork({ allowOut: ["example.com"] }),
      /network\.allowOut\[0\]: "example\.com": a domain needs denyOut to hold 0\.0\.0\.0\/0/,
    );
    assert.deepEqual(await reach(sandbox), ["closed", "open"]);
    await node.restart("SIGKILL");
    assert.deepEqual(await reach(sandbox), ["closed", "open"]);
    await sandbox.updateNetwork({});
    assert.deepEqual(await reach(sandbox), ["open", "open"]);
    await sandbox.kill();
  });

  void test("rules set while a sandbox is paused apply from its resume on", async () => {
    const sandbox = await Sandbox.create("base", { ...connection, timeoutMs: 600_000 });
    await sandbox.pause();
    await node.call(setSandboxNetwork, { sandboxID: sandbox.sandboxId, denyOut: [eight] });
    const resumed = await sandbox.connect({ timeoutMs: 600_000 });
    assert.deepEqual(await reach(resumed), ["open", "closed"]);
    await resumed.kill();
  });

  void test("rules of a sandbox that does not exist are answered 404", async () => {
    await assert.rejects(Sandbox.updateNetwork("iaaaaaaaaaaaaaaaaaaa", {}, connection), /not found/i);
  });
});
