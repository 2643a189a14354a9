// Named keys at gateways: what a tenant reaches through one, and keys that every gateway of a deployment knows.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { nodeControlOperations } from "@svc/contract/node-control.ts";
import { listNodes, nodesOperations } from "@svc/contract/nodes.ts";
import { nodeOperations } from "@svc/contract/sandbox.ts";
import { DEPLOYMENT_KEY, startDeployment } from "@svc/harness/deployment.ts";
import { type FrontedNodes, startFrontedNodes } from "@svc/harness/fronted-nodes.ts";
import { startGateway } from "@svc/harness/gateway.ts";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { Sandbox } from "e2b";
import { quotasSuite } from "./quotas.suite.ts";
import { ask, keyFor, tenantsSuite } from "./tenants.suite.ts";

void describe("named keys at a gateway with a fixed list of nodes", needs("root", "envd", "base", "runc"), () => {
  let deployment: FrontedNodes;
  before(async () => {
    deployment = await startFrontedNodes({ nodes: 2 });
  });
  after(() => deployment[Symbol.asyncDispose]());

  tenantsSuite(() => deployment.gateway, { ...nodeOperations, ...nodesOperations, ...nodeControlOperations });
  quotasSuite(() => deployment.gateway);

  void test("the E2B SDK works with a named key, and an application never sees the key", async () => {
    const { gateway } = deployment;
    const named = await keyFor(gateway, "acme", "member");
    const sandbox = await Sandbox.create("base", { apiUrl: gateway.url, sandboxUrl: gateway.url, apiKey: named.key });
    const program = `
import http.server
class Echo(http.server.BaseHTTPRequestHandler):
  def do_GET(self):
    body = str(self.headers).lower().encode()
    self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
http.server.HTTPServer(("0.0.0.0", 8090), Echo).serve_forever()
`;
    await sandbox.files.write("/tmp/echo.py", program);
    await sandbox.commands.run("python3 /tmp/echo.py", { background: true });
    const to = { "x-svc-sandbox-id": sandbox.sandboxId, "x-svc-target-port": "8090" };
    const headersSeen = (key: string) =>
      until("the application", async () => {
        const response = await fetch(`${gateway.url}/proxy/`, { headers: { ...to, "x-api-key": key } });
        return response.status === 200 ? await response.text() : undefined;
      });
    for (const key of [named.key, named.apiKey, gateway.apiKey]) assert.equal((await headersSeen(key)).includes("x-api-key"), false);
    assert.match(await headersSeen("the-applications-own"), /x-api-key: the-applications-own/);
    assert.equal(await sandbox.kill(), true);
  });
});

void describe("named keys in etcd", needs("root", "envd", "base", "runc", "etcd"), () => {
  void test("a key that one gateway creates and revokes is known to the other gateway and to the node", async () => {
    await using deployment = await startDeployment();
    await using node = await deployment.start({ runtime: "runc" });
    const options = { etcd: deployment.server.endpoints, apiKey: DEPLOYMENT_KEY };
    await using first = await startGateway(options);
    await using second = await startGateway(options);
    for (const gateway of [first, second])
      await until("the node", async () => ((await gateway.call(listNodes, {})).some(({ status }) => status === "ready") ? true : undefined));
    const named = await keyFor(first, "acme", "member");
    const statusAt = (url: string, wanted: number) =>
      until(`${wanted} at ${url}`, async () => {
        const { status } = await fetch(`${url}/sandboxes`, { headers: { "x-api-key": named.key } });
        return status === wanted ? true : undefined;
      });
    const { sandboxID } = (await (await ask(first, named.key, "POST", "/v2/sandboxes", { templateID: "base" })).json()) as { sandboxID: string };
    for (const { url } of [first, second, node]) await statusAt(url, 200);
    assert.equal((await ask(second, named.key, "GET", `/sandboxes/${sandboxID}`)).status, 200);
    const stored = (await deployment.etcd.list(deployment.keys.apiKeys)).entries.map(({ value }) => value).join();
    assert.equal(stored.includes(named.key.slice(4)) || stored.includes(named.apiKey.slice(4)), false);
    assert.equal((await ask(second, DEPLOYMENT_KEY, "DELETE", `/api-keys/${named.id}`)).status, 204);
    for (const { url } of [first, second, node]) await statusAt(url, 401);
    assert.equal((await ask(first, DEPLOYMENT_KEY, "DELETE", `/sandboxes/${sandboxID}`)).status, 204);
  });
});
