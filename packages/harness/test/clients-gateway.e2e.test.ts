// Clients at a gateway in front of two nodes: the E2B CLI, WebSocket, large bodies, template builds with the Python SDK.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { getNode, listNodes } from "@svc/contract/nodes.ts";
import { Sandbox } from "e2b";
import { WebSocket } from "ws";
import { download, envdAt, peakResidentBytes, upload } from "../src/bulk.ts";
import { e2b } from "../src/e2b-cli.ts";
import { type FrontedNodes, startFrontedNodes } from "../src/fronted-nodes.ts";
import type { TestGateway } from "../src/gateway.ts";
import { needs } from "../src/needs.ts";
import { runPython } from "../src/python.ts";
import { connectionTo, contextFolder } from "../src/template.ts";
import { until } from "../src/until.ts";

const PORT = 3000;
const BULK_BYTES = 2 ** 26;
/** The limit of the gateway's growth in resident size, whatever passes through. */
const GROWTH_BYTES = 100e6;

void describe("a gateway in front of two nodes", needs("root", "runsc", "envd", "base", "python3", "python-clients"), () => {
  let deployment: FrontedNodes;
  let gateway: TestGateway;
  /** One sandbox on each node. */
  let sandboxes: Sandbox[];

  before(async () => {
    deployment = await startFrontedNodes({ node: { runtime: "gvisor" } });
    gateway = deployment.gateway;
    sandboxes = await Promise.all([1, 2].map(() => Sandbox.create("base", { ...connectionTo(gateway), timeoutMs: 3_000_000 })));
    const held = await Promise.all((await gateway.call(listNodes, {})).map(({ id }) => gateway.call(getNode, { nodeID: id })));
    assert.deepEqual(
      held.map(({ sandboxes: each }) => each.length),
      [1, 1],
    );
  });
  after(() => deployment?.[Symbol.asyncDispose]());

  void test("the E2B CLI finds, describes, uses and ends the sandboxes of both", async () => {
    const made = sandboxes.map(({ sandboxId }) => sandboxId);
    const created = await e2b(gateway, "sandbox", "create", "base", "--detach");
    const sandboxID = /\bi[a-z0-9]{19,}\b/.exec(created.said)?.[0] ?? assert.fail(created.said);
    const listed = JSON.parse((await e2b(gateway, "sandbox", "list", "--format", "json")).out) as { sandboxId: string }[];
    assert.deepEqual(new Set(listed.map(({ sandboxId }) => sandboxId)), new Set([sandboxID, ...made]));
    for (const each of made) {
      assert.match((await e2b(gateway, "sandbox", "info", each)).said, new RegExp(each));
      const ran = await e2b(gateway, "sandbox", "exec", each, "python3 -c 'print(6*7)'");
      assert.match(ran.out, /^42$/m, ran.said);
    }
    const killed = await e2b(gateway, "sandbox", "kill", sandboxID);
    assert.equal(killed.code, 0, killed.said);
    assert.equal((JSON.parse((await e2b(gateway, "sandbox", "list", "--format", "json")).out) as unknown[]).length, 2);
  });

  void test("a WebSocket reaches an application on either node by its host name, with its subprotocol", async () => {
    for (const sandbox of sandboxes) {
      await sandbox.files.write("app.py", readFileSync(new URL("../src/web-app.py", import.meta.url), "utf8"));
      await sandbox.commands.run(`python3 app.py ${PORT}`, { background: true });
      const host = sandbox.getHost(PORT);
      const headers = { "x-svc-sandbox-id": sandbox.sandboxId, "x-svc-target-port": String(PORT) };
      await until("the application", async () => ((await fetch(gateway.url, { headers }).catch(() => undefined))?.status === 200 ? true : undefined));
      const socket = new WebSocket(`ws://127.0.0.1:${gateway.port}/`, ["chat"], { headers: { host } });
      const echoed = new Promise((resolve, reject) => socket.once("message", (data) => resolve(String(data))).once("error", reject));
      await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
      assert.equal(socket.protocol, "chat");
      socket.send("hello ".repeat(100));
      assert.equal(await echoed, "hello ".repeat(100));
      socket.close();
    }
  });

  void test("64 MiB go up to a sandbox of each node and come back the same, and the gateway's memory stays constant", async () => {
    const doors = sandboxes.map(({ sandboxId, ...rest }) => {
      const { envdAccessToken } = rest as unknown as { envdAccessToken?: string };
      return envdAt(gateway.port, { sandboxID: sandboxId, envdAccessToken });
    });
    for (const envd of doors) await upload(envd, "/home/user/warm", 2 ** 20);
    const before = peakResidentBytes(gateway.pid);
    await Promise.all(
      doors.map(async (envd) => {
        const sha256 = await upload(envd, "/home/user/bulk", BULK_BYTES);
        assert.deepEqual(await download(envd, "/home/user/bulk"), { sizeBytes: BULK_BYTES, sha256 });
      }),
    );
    const growth = peakResidentBytes(gateway.pid) - before;
    assert.ok(growth < GROWTH_BYTES, `the gateway grew by ${growth} bytes`);
  });

  void test("the E2B Python SDK, sync and async, builds templates", async () => {
    const { code, said } = await runPython(gateway, new URL("./template_python.py", import.meta.url));
    assert.equal(code, 0, said);
    assert.match(said, /Ran 3 tests/);
  });

  void test("the E2B CLI builds a template from a Dockerfile with a file of its context, lists it once and deletes it", async () => {
    using context = contextFolder({ "app/main.py": "print('built')\n", Dockerfile: "FROM e2bdev/base\nWORKDIR /srv/app\nCOPY app/ .\n" });
    const created = await e2b(
      gateway,
      "template",
      "create",
      "from-docker",
      "--path",
      context.path,
      "-d",
      "Dockerfile",
      "--cpu-count",
      "1",
      "--memory-mb",
      "512",
    );
    assert.equal(created.code, 0, created.said);
    const sandbox = await Sandbox.create("from-docker", connectionTo(gateway));
    assert.equal((await sandbox.commands.run("python3 main.py")).stdout, "built\n");
    await sandbox.kill();
    assert.equal((await e2b(gateway, "template", "list")).said.split("from-docker").length, 2);
    const deleted = await e2b(gateway, "template", "delete", "from-docker", "-y");
    assert.equal(deleted.code, 0, deleted.said);
    assert.doesNotMatch((await e2b(gateway, "template", "list")).said, /from-docker/);
  });
});
