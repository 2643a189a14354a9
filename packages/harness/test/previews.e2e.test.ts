// Names for ports of sandboxes: `svc expose`, at a node and through gateways, over restarts and the end of a sandbox.
import assert from "node:assert/strict";
import { request } from "node:http";
import { test } from "node:test";
import { createPreview, deletePreview, getPreview, listPreviews, type Preview } from "@svc/contract/previews.ts";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { allUp, startFrontedNodes } from "../src/fronted-nodes.ts";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { until } from "../src/until.ts";

const runc = needs("root", "runc", "envd", "base");
type Entry = { readonly url: string; readonly apiKey: string };
const connectionTo = ({ url, apiKey }: Entry) => ({ apiUrl: url, sandboxUrl: url, apiKey });
type Got = { status: number; body: string };

/** Requests a page at this host name, wherever the name leads. */
function page({ url }: Entry, host: string, headers: Readonly<Record<string, string>> = {}, path = "/"): Promise<Got> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const sent = request({ hostname, port, path, headers: { host: `${host}:${port}`, ...headers } }, (answer) => {
      let body = "";
      answer.setEncoding("utf8").on("data", (text: string) => void (body += text));
      answer.on("end", () => resolve({ status: answer.statusCode ?? 0, body }));
    });
    sent.on("error", reject).end();
  });
}

async function application(sandbox: Sandbox, text: string, port = 3000): Promise<void> {
  await sandbox.commands.run(`mkdir -p /tmp/site${port} && echo '${text}' > /tmp/site${port}/index.html`);
  await sandbox.commands.run(`cd /tmp/site${port} && exec python3 -m http.server ${port}`, { background: true, timeoutMs: 0 });
  await sandbox.commands.run(`until curl -sf -o /dev/null http://127.0.0.1:${port}/; do sleep 0.1; done`, { timeoutMs: 60_000 });
}

const shown = (previews: readonly Preview[]) => previews.map(({ name, sandboxID, port }) => `${name} ${sandboxID} ${port}`);

void test("a name leads to a port of a sandbox under the port's rules, over restarts, until it is removed or the sandbox ends", runc, async () => {
  await using node = await startNode({ runtime: "runc" });
  const at = connectionTo(node);
  const sandbox = await Sandbox.create("base", { ...at, timeoutMs: 600_000 });
  await application(sandbox, "hello from the app");
  const asked = { name: "app", sandboxID: sandbox.sandboxId, port: 3000 };
  const made = await node.call(createPreview, asked);
  assert.equal(made.host, `app.localhost:${new URL(node.url).port}`);
  assert.deepEqual(await node.call(createPreview, asked), made, "the same call again changes nothing");
  assert.deepEqual(await page(node, "app.localhost"), { status: 200, body: "hello from the app\n" });
  assert.deepEqual(await page(node, "APP.localhost."), { status: 200, body: "hello from the app\n" });
  // A control path at a preview's host is the application's, even with the deployment's key.
  assert.equal((await page(node, "app.localhost", { "x-api-key": node.apiKey }, "/sandboxes")).status, 404);
  assert.match((await page(node, "app.localhost", { "x-api-key": node.apiKey }, "/sandboxes")).body, /File not found/);
  assert.equal((await page(node, "other.localhost", { "x-api-key": node.apiKey }, "/v2/sandboxes")).status, 200, "any other name is the server's own");

  const second = await Sandbox.create("base", { ...at, network: { allowPublicTraffic: false }, timeoutMs: 600_000 });
  await application(second, "hello in private");
  const taken = { name: "app", sandboxID: second.sandboxId, port: 3000 };
  await assert.rejects(node.call(createPreview, taken), {
    name: "PREVIEW_EXISTS",
    message: new RegExp(`'app' leads to port 3000 of sandbox ${sandbox.sandboxId}; .*--replace`),
  });
  await assert.rejects(node.call(createPreview, { ...taken, name: "api" }), /is reserved/);
  await assert.rejects(node.call(createPreview, { ...taken, name: "3000-x" }), /expected a-z/);
  await assert.rejects(node.call(createPreview, { ...taken, name: "x", sandboxID: "inobody" }), { name: "SANDBOX_NOT_FOUND" });
  await node.call(createPreview, { ...taken, name: "private-app" });
  assert.equal((await page(node, "private-app.localhost")).status, 403);
  const token = { "svc-traffic-access-token": second.trafficAccessToken ?? "" };
  assert.equal((await page(node, "private-app.localhost", token)).body, "hello in private\n");

  await node.restart("SIGKILL");
  assert.deepEqual(shown(await node.call(listPreviews, {})), [`app ${sandbox.sandboxId} 3000`, `private-app ${second.sandboxId} 3000`]);
  assert.equal((await page(node, "app.localhost")).body, "hello from the app\n");
  assert.deepEqual(shown(await node.call(listPreviews, { sandboxID: second.sandboxId })), [`private-app ${second.sandboxId} 3000`]);

  await sandbox.kill();
  const gone = await page(node, "app.localhost");
  assert.equal(gone.status, 502);
  assert.match(gone.body, new RegExp(`The preview 'app' leads to port 3000 of sandbox ${sandbox.sandboxId}, which ended at`));
  assert.notEqual((await node.call(getPreview, { name: "app" })).endedAt, null);
  await node.call(createPreview, taken);
  assert.equal((await page(node, "app.localhost", token)).body, "hello in private\n", "another sandbox takes the name of one that ended");
  await node.call(deletePreview, { name: "app" });
  await assert.rejects(node.call(getPreview, { name: "app" }), { name: "PREVIEW_NOT_FOUND" });
  assert.doesNotMatch((await page(node, "app.localhost", token)).body, /hello/, "the name is the server's own again");
});

void test("through gateways a name is one for the deployment, whichever node has the sandbox", runc, async () => {
  await using deployment = await startFrontedNodes({ nodes: 2, gateways: 2 });
  const { nodes, gateways } = deployment;
  const [front, other] = gateways as [(typeof gateways)[0], (typeof gateways)[0]];
  const sandboxes = await Promise.all(
    nodes.map(async (node, index) => {
      const { sandboxID } = await node.call(createSandbox, { templateID: "base", timeout: 600 });
      const sandbox = await Sandbox.connect(sandboxID, { ...connectionTo(node), timeoutMs: 600_000 });
      await application(sandbox, `hello from node ${index}`);
      return sandbox;
    }),
  );
  const [one, two] = sandboxes as [Sandbox, Sandbox];
  const made = await front.call(createPreview, { name: "one", sandboxID: one.sandboxId, port: 3000 });
  assert.equal(made.host, `one.localhost:${front.port}`);
  assert.equal((await page(front, "one.localhost")).body, "hello from node 0\n");
  await assert.rejects(other.call(createPreview, { name: "one", sandboxID: two.sandboxId, port: 3000 }), { name: "PREVIEW_EXISTS" });
  await until("the name at the other gateway", async () => ((await page(other, "one.localhost")).body === "hello from node 0\n" ? true : undefined));

  // Both want one name at the same time: one of them gets it.
  const race = await Promise.allSettled(
    [front, other].map((gateway, index) => gateway.call(createPreview, { name: "race", sandboxID: (sandboxes[index] as Sandbox).sandboxId, port: 3000 })),
  );
  const won = race.findIndex(({ status }) => status === "fulfilled");
  assert.deepEqual(race.map(({ status }) => status).toSorted(), ["fulfilled", "rejected"]);
  for (const entry of [front, other]) assert.equal((await entry.call(getPreview, { name: "race" })).sandboxID, sandboxes[won]?.sandboxId);

  await front.call(createPreview, { name: "two", sandboxID: two.sandboxId, port: 3000 });
  await front.call(createPreview, { name: "one", sandboxID: two.sandboxId, port: 3000, replace: true });
  assert.equal((await page(front, "one.localhost")).body, "hello from node 1\n");
  await deployment.restart("SIGKILL");
  await allUp(front);
  await until("the names after a restart of everything", async () => ((await front.call(listPreviews, {})).length === 3 ? true : undefined));
  await until("the application", async () => ((await page(front, "two.localhost")).body === "hello from node 1\n" ? true : undefined));
  await front.call(deletePreview, { name: "two" });
  for (const entry of [front, other, ...nodes]) await assert.rejects(entry.call(getPreview, { name: "two" }), { name: "PREVIEW_NOT_FOUND" });
  await Sandbox.kill(two.sandboxId, connectionTo(front));
  await until("an answer that names the end", async () => (/which ended at|was not found/.test((await page(front, "one.localhost")).body) ? true : undefined));
});
