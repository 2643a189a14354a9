// Named keys at a real node: what a tenant reaches, what survives kill -9, and `svc keys`.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { nodeControlOperations } from "@svc/contract/node-control.ts";
import { getSandbox, nodeOperations } from "@svc/contract/sandbox.ts";
import { needs } from "@svc/harness/needs.ts";
import { startNode, type TestNode } from "@svc/harness/node.ts";
import { until } from "@svc/harness/until.ts";
import { quotasSuite } from "./quotas.suite.ts";
import { ask, keyFor, tenantsSuite } from "./tenants.suite.ts";

void describe("named keys at a node", needs("root", "envd", "base", "runsc"), () => {
  let node: TestNode;
  before(async () => {
    node = await startNode({ runtime: "gvisor" });
  });
  after(() => node[Symbol.asyncDispose]());

  tenantsSuite(() => node, { ...nodeOperations, ...nodeControlOperations });
  quotasSuite(() => node);

  void test("keys, their tenants and their sandboxes survive kill -9, and a revoked key stays revoked", async () => {
    const kept = await keyFor(node, "acme", "member");
    const revoked = await keyFor(node, "acme", "member");
    const { sandboxID } = (await (await ask(node, kept.key, "POST", "/v2/sandboxes", { templateID: "base" })).json()) as { sandboxID: string };
    await ask(node, node.apiKey, "DELETE", `/api-keys/${revoked.id}`);
    await node.restart("SIGKILL");
    assert.equal((await ask(node, kept.apiKey, "GET", `/sandboxes/${sandboxID}`)).status, 200);
    assert.equal((await ask(node, revoked.apiKey, "GET", "/sandboxes")).status, 401);
    assert.equal((await ask(node, (await keyFor(node, "globex")).key, "GET", `/sandboxes/${sandboxID}`)).status, 404);
    assert.equal((await node.call(getSandbox, { sandboxID })).tenant, "acme");
    const audited = await until("the audit log", () => {
      const lines = readFileSync(join(node.home, "audit.log"), "utf8").trim().split("\n");
      return lines.map((line) => JSON.parse(line) as { operation?: string; tenant?: string; keyID?: string }).find(({ keyID }) => keyID === kept.id);
    });
    assert.deepEqual([audited.operation, audited.tenant], ["createSandbox", "acme"]);
  });
});
