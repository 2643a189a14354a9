// Nodes that die, stop, return or do not belong: what clients of a gateway get as an answer, and that other nodes are not affected.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { MISSING_NODES_HEADER } from "@svc/contract/cluster.ts";
import { removeNode, setNodeStatus } from "@svc/contract/node-control.ts";
import { listNodes } from "@svc/contract/nodes.ts";
import { createSandbox, deleteSandbox, getSandbox, listSandboxes, listSandboxesV1 } from "@svc/contract/sandbox.ts";
import { freeze, thaw } from "@svc/harness/freeze.ts";
import { allUp, type FrontedNodes, KEY, startFrontedNodes, startMember } from "@svc/harness/fronted-nodes.ts";
import { startGateway } from "@svc/harness/gateway.ts";
import { needs } from "@svc/harness/needs.ts";
import type { TestNode } from "@svc/harness/node.ts";
import { until } from "@svc/harness/until.ts";

void describe("a gateway whose nodes are lost", needs("root", "envd", "base", "runc"), () => {
  let deployment: FrontedNodes;
  /** One sandbox on each node. */
  let held: { readonly node: TestNode; readonly name: string; readonly sandboxID: string; readonly token: string }[];

  before(async () => {
    deployment = await startFrontedNodes({ flags: ["--gateway.node_silence_ms=2000"] });
    const { gateway, nodes } = deployment;
    const names = new Map((await gateway.call(listNodes, {})).map(({ id, url }) => [url, id]));
    held = await Promise.all(
      nodes.map(async (node) => {
        const { sandboxID, envdAccessToken = "" } = await node.call(createSandbox, { templateID: "base", timeout: 3_000 });
        return { node, name: names.get(node.url) ?? "", sandboxID, token: envdAccessToken };
      }),
    );
    for (const { sandboxID } of held) await until("the gateway knows it", () => gateway.call(getSandbox, { sandboxID }).catch(() => undefined));
  });
  after(async () => {
    await deployment[Symbol.asyncDispose]();
  });

  const ask = ({ sandboxID, token }: { sandboxID: string; token: string }, path = "/health", init: RequestInit = {}) =>
    fetch(`${deployment.gateway.url}${path}`, {
      ...init,
      headers: { "x-svc-sandbox-id": sandboxID, "x-svc-target-port": "49983", "x-access-token": token, ...init.headers },
    });

  for (const how of ["SIGKILL", "SIGSTOP"] as const) {
    void test(`after ${how} of a node requests to its sandboxes get 502 with the reason, and sandboxes of other nodes are not affected`, async () => {
      const { gateway } = deployment;
      const [first, second] = held as [(typeof held)[number], (typeof held)[number]];
      assert.equal((await ask(first)).status, 204);
      if (how === "SIGKILL") await first.node.kill("SIGKILL");
      else await freeze(first.node.pid);
      try {
        const refused = await until("502", async () => {
          const response = await ask(first);
          return response.status === 502 ? response : undefined;
        });
        assert.equal(refused.headers.get("x-svc-reason"), "node_lost");
        const { message } = (await refused.json()) as { message: string };
        assert.ok(message.includes(first.name), message);
        // SDKs take these words for a sandbox that is gone for good.
        assert.doesNotMatch(message, /was not found|port is not open/);
        assert.equal((await ask(second)).status, 204);

        await until("out of placement", async () => ((await gateway.call(listNodes, {})).some(({ status }) => status === "unhealthy") ? true : undefined));
        await assert.rejects(gateway.call(getSandbox, { sandboxID: first.sandboxID }), { name: "NODE_LOST" });
        // With a fixed list only the settings define the nodes, and no other process keeps a node's status.
        await assert.rejects(gateway.call(removeNode, { nodeID: first.name }), {
          name: "INVALID_REQUEST",
          message: /a fixed list.*start the gateway without its URL/,
        });
        await assert.rejects(gateway.call(setNodeStatus, { nodeID: first.name, status: "draining" }), { name: "NODE_LOST", message: /does not answer/ });
        await assert.rejects(gateway.call(setNodeStatus, { nodeID: "self", status: "draining" }), {
          name: "NODE_NOT_FOUND",
          message: /at a gateway expected a node's id/,
        });
        const listed = await gateway.callForAnswer(listSandboxes, {});
        assert.equal(listed.headers.get(MISSING_NODES_HEADER), first.name);
        assert.ok(listed.value.some(({ sandboxID }) => sandboxID === second.sandboxID));
        assert.match(gateway.log(), /"missing":\[\{"name":"node-/);
        // An unknown sandbox may be on the lost node.
        await assert.rejects(gateway.call(getSandbox, { sandboxID: "unknown" }), { name: "NODE_LOST" });
        const created = await Promise.all(Array.from({ length: 3 }, () => gateway.call(createSandbox, { templateID: "base" })));
        for (const { sandboxID } of created) await gateway.call(deleteSandbox, { sandboxID });
      } finally {
        if (how === "SIGKILL") await first.node.start();
        else thaw(first.node.pid);
      }
      await allUp(gateway);
      assert.equal((await until("its sandbox again", async () => ((await ask(first)).status === 204 ? first : undefined))).sandboxID, first.sandboxID);
      assert.equal((await gateway.callForAnswer(listSandboxes, {})).headers.get(MISSING_NODES_HEADER), null);
    });
  }

  void test("a create under an idempotency key makes one sandbox, even if it is repeated at another gateway", async () => {
    const { gateway } = deployment;
    await using second = await startGateway({ nodes: deployment.nodes.map(({ url }) => url).reverse(), apiKey: KEY });
    await allUp(second);
    const ids = new Set<string>();
    for (const idempotencyKey of ["one", "two", "three"]) {
      const answers = [];
      for (const each of [gateway, second, gateway]) answers.push(await each.call(createSandbox, { templateID: "base", idempotencyKey }));
      assert.equal(new Set(answers.map(({ sandboxID }) => sandboxID)).size, 1);
      ids.add(answers[0]?.sandboxID ?? "");
    }
    assert.equal(ids.size, 3);
    await Promise.all([...ids].map((sandboxID) => gateway.call(deleteSandbox, { sandboxID })));
  });

  void test("a repeated create fails with the lost node's name instead of making a second sandbox", async () => {
    const { gateway, nodes } = deployment;
    const { sandboxID } = await gateway.call(createSandbox, { templateID: "base", idempotencyKey: "lost" });
    const held = await Promise.all(nodes.map(async (each) => (await each.call(listSandboxesV1, {})).some((one) => one.sandboxID === sandboxID)));
    const node = nodes[held.indexOf(true)] ?? assert.fail("no node has it");
    await node.kill("SIGKILL");
    await until("lost", async () => ((await gateway.call(listNodes, {})).some(({ status }) => status === "unhealthy") ? true : undefined));
    await assert.rejects(gateway.call(createSandbox, { templateID: "base", idempotencyKey: "lost" }), { name: "NODE_LOST", message: /Idempotency-Key/ });
    await node.start();
    await allUp(gateway);
    assert.equal((await gateway.call(createSandbox, { templateID: "base", idempotencyKey: "lost" })).sandboxID, sandboxID);
    await gateway.call(deleteSandbox, { sandboxID });
  });
});

void describe("a gateway and a node that do not belong together", needs("root", "envd", "base", "runc"), () => {
  void test("a node with another seed or another key is refused, with both fingerprints in the reason", async () => {
    await using good = await startMember();
    await using seed = await startMember({ env: { SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: "other-seed-".repeat(6) } });
    await using key = await startMember({ env: { SVC_API_KEY: `key-${"o".repeat(40)}` } });
    await using gateway = await startGateway({ nodes: [good.url], apiKey: KEY });
    await allUp(gateway);
    await using all = await startGateway({ nodes: [good.url, seed.url, key.url], apiKey: KEY });
    const listed = await until("two refusals", async () => {
      const nodes = await all.call(listNodes, {});
      return nodes.filter(({ status }) => status === "unhealthy").length === 2 ? nodes : undefined;
    });
    const [ofKey] = listed.filter(({ reason }) => reason?.includes("API key") === true);
    const [ofSeed] = listed.filter(({ reason }) => reason?.includes("seed of tokens") === true);
    assert.equal(ofKey?.url, key.url);
    for (const each of [ofKey, ofSeed]) assert.equal(new Set(each?.reason?.match(/\b[0-9a-f]{16}\b/g)).size, 2, each?.reason);
    const { sandboxID } = await all.call(createSandbox, { templateID: "base" });
    await all.call(deleteSandbox, { sandboxID });
    assert.match(all.log(), /is refused: its API key has the fingerprint/);
  });
});
