// A sandbox that moved and was lost with its new node: every request about it reports that.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { moveSandbox } from "@svc/contract/lifecycle.ts";
import { listNodes } from "@svc/contract/nodes.ts";
import { createSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { DEPLOYMENT_KEY, startDeployment } from "../src/deployment.ts";
import { startGateway } from "../src/gateway.ts";
import { needs } from "../src/needs.ts";
import { until } from "../src/until.ts";

const given = needs("root", "runsc", "envd", "base", "etcd", "xxh128sum");

void test("a sandbox that was lost on the node that it moved to is reported as lost, not as moved", given, async () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-lost-"));
  await using stack = new AsyncDisposableStack();
  stack.defer(() => rmSync(folder, { recursive: true, force: true }));
  const deployment = stack.use(await startDeployment(5, 1));
  const flags = [`--objects.url=file://${folder}`];
  const from = stack.use(await deployment.start({ flags }));
  const to = stack.use(await deployment.start({ flags }));
  const gateway = stack.use(await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY }));
  const allReady = () =>
    until("both nodes", async () => {
      const listed = await gateway.call(listNodes, {});
      return listed.length === 2 && listed.every(({ status }) => status === "ready") ? true : undefined;
    });
  await allReady();

  // Its id contains the slot of the source node.
  const { sandboxID, envdAccessToken = "" } = await from.call(createSandbox, { templateID: "base", timeout: 3600 });
  await gateway.call(moveSandbox, { sandboxID });
  const { url } = to;
  await to.kill("SIGKILL");
  await deployment.nodeAt(url, "is dead", ({ state }) => state === "dead");
  await to.start();
  await allReady();
  const headers = { "x-svc-sandbox-id": sandboxID, "x-svc-target-port": "49983", "x-access-token": envdAccessToken };
  for (const when of ["at once", "after the gateway was started again"]) {
    const answer = await fetch(`${gateway.url}/health`, { headers });
    assert.deepEqual([answer.status, answer.headers.get("x-svc-reason")], [502, "not_found"], when);
    await assert.rejects(gateway.call(getSandbox, { sandboxID }), { name: "SANDBOX_NOT_FOUND", message: /node_lost/ }, when);
    await gateway.restart();
    await allReady();
  }
});
