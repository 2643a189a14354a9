// A few old releases of the E2B SDKs against a node, where an earlier svc failed them; `./svc test long sdks` drives all of them.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { pauseSandbox } from "@svc/contract/lifecycle.ts";
import { createSandboxV1 } from "@svc/contract/sandbox.ts";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { driveSdk, openTlsFront, type SdkStep } from "../src/sdk-drive.ts";
import { sdkRelease } from "../src/sdk-releases.ts";

const programs = ["python3", "npm", "nginx", "openssl"];

void describe("a node and older releases of the E2B SDKs", needs("root", "runsc", "envd", "base", ...programs), async () => {
  const front = await openTlsFront();
  const node = await startNode({ runtime: "gvisor", flags: [`--proxy.domains=${front.domain}`] });
  after(async () => {
    await node[Symbol.asyncDispose]();
    await front[Symbol.asyncDispose]();
  });
  before(() => front.frontOf(node));
  const all = async (release: Parameters<typeof driveSdk>[0], steps: readonly SdkStep[]) => {
    const said = await driveSdk(release, node, release.reach === "domain" ? front : undefined, steps);
    assert.deepEqual(said, Object.fromEntries(steps.map((step) => [step, "yes"])));
  };

  void test("Python 2.10 connects to a running sandbox and to a paused one, and continues to work in each", () =>
    all(sdkRelease("python", "2.10.2"), ["create", "files", "connect", "pause", "resume", "kill"]));

  void test("JavaScript 1.0, which appends the client's id to a sandbox's id, works over a domain with TLS", () =>
    all(sdkRelease("javascript", "1.0.7"), ["create", "commands", "files", "list", "is_running", "connect", "kill"]));

  void test("a connect request with the key and a sandbox's headers reaches the control plane, whether the sandbox runs or is paused", async () => {
    const { sandboxID } = await node.call(createSandboxV1, { templateID: "base", timeout: 300, secure: true });
    const headers = { "x-api-key": node.apiKey, "content-type": "application/json", "e2b-sandbox-id": sandboxID, "e2b-sandbox-port": "49983" };
    const connect = () => fetch(`${node.url}/sandboxes/${sandboxID}/connect`, { method: "POST", headers, body: '{"timeout":300}' });
    const running = await connect();
    assert.equal(running.status, 200, await running.text());
    await node.call(pauseSandbox, { sandboxID });
    const paused = await connect();
    assert.equal(paused.status, 201, await paused.text());
  });
});
