// A node whose machine's clock is an hour ahead, and nodes of different versions: what an operator and clients of the gateway see.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { listNodes } from "@svc/contract/nodes.ts";
import { createSandbox, deleteSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { clockChecks } from "@svc/sandbox/doctor/clock.ts";
import { DEPLOYMENT_KEY, type Deployment, startDeployment } from "../src/deployment.ts";
import { startGateway, type TestGateway } from "../src/gateway.ts";
import { needs } from "../src/needs.ts";
import type { TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

const HOUR_MS = 3_600_000;
const LIFE_SECONDS = 3_000;
/** Far less than the hour, and more than a busy machine takes. */
const NEAR_MS = 600_000;

void describe("nodes that differ", needs("root", "envd", "base", "bwrap", "etcd"), () => {
  let deployment: Deployment;
  let gateway: TestGateway;
  let right: TestNode;
  let wrong: TestNode;

  const shown = async ({ url }: TestNode) => (await gateway.call(listNodes, {})).find((node) => node.url === url);
  /** Waits for the status and, if it is not ready, for the node's own reason: while the node is down, the gateway gives another one. */
  const becomes = (node: TestNode, status: string) =>
    until(`it is ${status}`, async () => {
      const found = await shown(node);
      return found?.status === status && (status === "ready" || /its clock/.test(found.reason ?? "")) ? found : undefined;
    });

  before(async () => {
    deployment = await startDeployment();
    right = await deployment.start({ runtime: "bubblewrap" });
    wrong = await deployment.start({ runtime: "bubblewrap" });
    gateway = await startGateway({ etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY });
    for (const node of [right, wrong]) await becomes(node, "ready");
  });
  after(async () => {
    await gateway?.[Symbol.asyncDispose]();
    for (const node of [right, wrong]) await node?.[Symbol.asyncDispose]();
    await deployment?.[Symbol.asyncDispose]();
  });

  void test("a node says its commit, the schema of its records and how far its clock is", async () => {
    const found = (await shown(right)) ?? assert.fail();
    const commit = execFileSync("git", ["-C", import.meta.dirname, "rev-parse", "HEAD"], { encoding: "utf8" }).trim();
    assert.deepEqual([found.commit, found.runsc], [commit, ""]);
    assert.match(found.schema, /^\d+\.\d+$/);
    assert.ok(Math.abs(found.clockSkewMs ?? Number.NaN) < 2_000, String(found.clockSkewMs));
    assert.match((await clockChecks(right.home))[0]?.says ?? "", /^0\.\d s (ahead of|behind) the deployment's$/);
  });

  for (const [offsetMs, words] of [
    [HOUR_MS, /its clock is 3\d\d\d\.\d s ahead of the deployment's .* set the machine's clock/],
    [-HOUR_MS, /its clock is 3\d\d\d\.\d s behind the deployment's/],
  ] as const) {
    void test(`a node whose clock is ${offsetMs / HOUR_MS} hour off is not ready and says why, and its clients see the deployment's times`, async () => {
      const { sandboxID } = await wrong.call(createSandbox, { templateID: "base", timeout: LIFE_SECONDS });
      const startedAt = Date.parse((await wrong.call(getSandbox, { sandboxID })).startedAt);
      await wrong.restart("SIGKILL", { env: { SVC_TEST_CLOCK_OFFSET_MS: String(offsetMs) } });
      const { reason, clockSkewMs = 0 } = await becomes(wrong, "unhealthy");
      assert.match(reason ?? "", words);
      assert.ok(Math.abs(clockSkewMs - offsetMs) < NEAR_MS, String(clockSkewMs));
      assert.match(wrong.log(), /is not ready: its clock is/);
      const [check] = await clockChecks(wrong.home);
      assert.equal(check?.works, false);
      assert.match(check?.says ?? "", words);

      // Its sandboxes continue, by the deployment's clock.
      const detail = await gateway.call(getSandbox, { sandboxID });
      assert.ok(Math.abs(Date.parse(detail.endAt) - startedAt - LIFE_SECONDS * 1000) < NEAR_MS, `${detail.startedAt} ${detail.endAt}`);
      // New ones go elsewhere.
      await assert.rejects(wrong.call(createSandbox, { templateID: "base" }), { name: "CAPACITY_EXHAUSTED", message: words });
      const created = await Promise.all(Array.from({ length: 4 }, () => gateway.call(createSandbox, { templateID: "base" })));
      assert.deepEqual([(await shown(wrong))?.sandboxCount, (await shown(right))?.sandboxCount], [1, 4]);
      for (const each of [{ sandboxID }, ...created]) await gateway.call(deleteSandbox, { sandboxID: each.sandboxID });

      await wrong.restart("SIGKILL");
      assert.equal((await becomes(wrong, "ready")).reason, undefined);
    });
  }
});
