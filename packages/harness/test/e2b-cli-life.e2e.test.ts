// The unmodified E2B CLI and the SDK of the older API generation run a sandbox through its whole life, on gVisor.
import assert from "node:assert/strict";
import { after, afterEach, before, describe, test } from "node:test";
import { deleteSandbox, listSandboxes } from "@svc/contract/sandbox.ts";
import { Sandbox as OldSandbox } from "e2b-2-50";
import { e2b } from "../src/e2b-cli.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

type Listed = { sandboxId: string; state: string };

void describe("clients of the older API generation on gvisor", needs("root", "runsc", "envd", "base"), () => {
  let node: TestNode;
  before(async () => {
    node = await startNode({ runtime: "gvisor" });
  });
  after(() => node[Symbol.asyncDispose]());
  afterEach(async () => {
    for (const { sandboxID } of await node.call(listSandboxes, {})) await node.call(deleteSandbox, { sandboxID });
  });

  const cli = async (...args: string[]) => {
    const answer = await e2b(node, "sandbox", ...args);
    assert.equal(answer.code, 0, `e2b sandbox ${args.join(" ")}: ${answer.said}`);
    return answer;
  };
  const listed = async (...args: string[]) => JSON.parse((await cli("list", "--format", "json", ...args)).out) as Listed[];
  const post = async (path: string, body: object) => {
    const headers = { "x-api-key": node.apiKey, "content-type": "application/json" };
    const response = await fetch(`${node.url}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
    const text = await response.text();
    return { status: response.status, body: (text === "" ? {} : JSON.parse(text)) as Record<string, unknown> };
  };

  void test("the E2B CLI creates, lists, describes, runs in, measures, logs, pauses, resumes and kills a sandbox", async () => {
    const created = await cli("create", "base", "--detach", "--timeout", "600", "--lifecycle.ontimeout", "pause");
    const sandboxID = /\bi[a-z0-9]{19}\b/.exec(created.said)?.[0] ?? "";
    assert.notEqual(sandboxID, "", created.said);
    assert.deepEqual(
      (await listed()).map(({ sandboxId, state }) => [sandboxId, state]),
      [[sandboxID, "running"]],
    );
    const info = JSON.parse((await cli("info", sandboxID, "--format", "json")).out) as Record<string, unknown>;
    assert.equal(info["sandboxId"], sandboxID);
    assert.match((await cli("exec", sandboxID, "echo kept > note; cat note; hostname")).out, new RegExp(`^kept\\n${sandboxID}$`, "m"));
    const failed = await e2b(node, "sandbox", "exec", sandboxID, "exit 7");
    assert.equal(failed.code, 7, failed.said);

    const metrics = await until("metrics", async () => {
      const { out } = await cli("metrics", sandboxID, "--format", "json");
      return /memUsed|mem_used/i.test(out) ? out : undefined;
    });
    assert.match(metrics, /cpuCount/);
    const logs = await until("the log of its processes", async () => {
      const { out } = await cli("logs", sandboxID, "--format", "json");
      return /cat note/.test(out) ? out : undefined;
    });
    assert.match(logs, /sandbox created/);

    await cli("pause", sandboxID);
    assert.deepEqual(await listed(), []);
    assert.deepEqual(
      (await listed("--state", "paused")).map(({ sandboxId }) => sandboxId),
      [sandboxID],
    );
    assert.match((await e2b(node, "sandbox", "pause", sandboxID)).said, /already paused/i);
    await cli("resume", sandboxID);
    assert.match((await cli("exec", sandboxID, "cat note")).out, /^kept$/m);
    await cli("kill", sandboxID);
    assert.deepEqual(await listed("--state", "running,paused"), []);
    assert.match((await e2b(node, "sandbox", "info", sandboxID)).said, /wasn't found/);
  });

  void test("the E2B CLI creates, lists, starts and deletes snapshots", async () => {
    const sandboxID = /\bi[a-z0-9]{19}\b/.exec((await cli("create", "base", "--detach")).said)?.[0] ?? "";
    await cli("exec", sandboxID, "echo first > note");
    const made = await cli("snapshot", "create", sandboxID, "--name", "cli-life");
    assert.match(made.said, new RegExp(`Created snapshot .* from sandbox ${sandboxID}`));
    await cli("exec", sandboxID, "echo second > note");
    const snapshots = JSON.parse((await cli("snapshot", "list", sandboxID, "--format", "json")).out) as { snapshotId: string; names: string[] }[];
    assert.deepEqual(
      snapshots.map(({ names }) => names),
      [["cli-life:default"]],
    );
    const copyID = /\bi[a-z0-9]{19}\b/.exec((await cli("create", "cli-life", "--detach")).said)?.[0] ?? "";
    assert.match((await cli("exec", copyID, "cat note")).out, /^first$/m);
    assert.match((await cli("exec", sandboxID, "cat note")).out, /^second$/m);
    await cli("snapshot", "delete", snapshots[0]?.snapshotId ?? "");
    assert.deepEqual(JSON.parse((await cli("snapshot", "list", "--format", "json")).out), []);
    await cli("kill", sandboxID, copyID);
  });

  void test("the SDK of the older generation creates, pauses, connects to, copies and kills a sandbox", async () => {
    const connection = { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey };
    const sandbox = await OldSandbox.create("base", { ...connection, timeoutMs: 600_000, lifecycle: { onTimeout: "pause", autoResume: true } });
    await sandbox.files.write("note", "kept");
    assert.equal(await sandbox.pause(), true);
    assert.equal(await sandbox.pause(), false);
    assert.equal((await sandbox.commands.run("cat note")).stdout, "kept", "traffic resumes it");
    await sandbox.pause();
    const again = await OldSandbox.connect(sandbox.sandboxId, connection);
    assert.equal(await again.files.read("note"), "kept");
    const snapshot = await again.createSnapshot();
    const copy = await OldSandbox.create(snapshot.snapshotId, connection);
    assert.equal(await copy.files.read("note"), "kept");
    const page = await OldSandbox.list({ ...connection, query: { state: ["running"] } }).nextItems();
    assert.deepEqual(page.map(({ sandboxId }) => sandboxId).sort(), [copy.sandboxId, sandbox.sandboxId].sort());
    assert.equal(await OldSandbox.deleteSnapshot(snapshot.snapshotId, connection), true);
    assert.equal(await copy.kill(), true);
    assert.equal(await sandbox.kill(), true);
    assert.equal(await sandbox.kill(), false);
    await assert.rejects(OldSandbox.connect(sandbox.sandboxId, connection), /not found/i);
  });

  void test("requests of the older generation are answered as its clients expect", async () => {
    const { status, body } = await post("/sandboxes", { templateID: "base", timeout: 300 });
    assert.equal(status, 201);
    const sandboxID = String(body["sandboxID"]);
    assert.equal(body["envdAccessToken"], undefined, "not secure unless asked");
    const at = (path: string, input: object) => post(`/sandboxes/${sandboxID}/${path}`, input);
    assert.deepEqual([(await at("connect", { timeout: 300 })).status, (await at("refreshes", { duration: 600 })).status], [200, 204]);
    const refused = await at("resume", {});
    assert.deepEqual([refused.status, refused.body["code"]], [409, 409]);
    assert.equal((await at("pause", {})).status, 204);
    const paused = await at("pause", {});
    assert.deepEqual([paused.status, paused.body["code"]], [409, 409]);
    assert.equal((await at("connect", { timeout: 300 })).status, 201, "resumed");
    assert.equal((await at("pause", {})).status, 204);
    const resumed = await at("resume", { timeout: 300 });
    assert.deepEqual([resumed.status, resumed.body["sandboxID"]], [201, sandboxID]);
    const headers = { "x-api-key": node.apiKey };
    const listedV1 = (await (await fetch(`${node.url}/sandboxes`, { headers })).json()) as { sandboxID: string }[];
    assert.deepEqual(
      listedV1.map((each) => each.sandboxID),
      [sandboxID],
    );
    assert.equal((await fetch(`${node.url}/sandboxes/${sandboxID}`, { method: "DELETE", headers })).status, 204);
    for (const path of ["connect", "resume", "pause", "refreshes"]) {
      const gone = await at(path, { timeout: 300 });
      assert.deepEqual([path, gone.status, gone.body["code"]], [path, 404, 404]);
    }
  });
});
