// Snapshots that are transferred between nodes, as a file with the command line and through object storage, with all their processes.
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, truncateSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { createSnapshot, getSnapshot, pauseSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { deleteTemplate } from "@svc/contract/template.ts";
import { loadConfig } from "@svc/kit/config.ts";
import { closeParts } from "@svc/kit/lifecycle.ts";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import type { Node } from "@svc/sandbox/node/node.ts";
import { openNode } from "@svc/sandbox/node/open-node.ts";
import { nodeSettings } from "@svc/sandbox/node/settings.ts";
import { Sandbox } from "e2b";
import { makeHome, removeHome } from "../src/home.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { startObjectServer } from "../src/object-server.ts";
import { until } from "../src/until.ts";

const CLI = join(import.meta.dirname, "../../cli/src/main.ts");
const run = promisify(execFile);

const connectionTo = (node: TestNode) => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });

async function cli(node: TestNode, ...args: string[]): Promise<{ stdout: string; stderr: string; code: number }> {
  const env = { ...process.env, SDK_API_KEY: node.apiKey, SVC_URL: node.url };
  return run(process.execPath, ["--disable-warning=ExperimentalWarning", CLI, ...args, "--url", node.url], { env }).then(
    (done) => ({ ...done, code: 0 }),
    (error: { stdout: string; stderr: string; code: number }) => error,
  );
}

/** Creates another home with the same deployment secrets, like another node of the deployment. */
function homeBeside(home: string): string {
  const beside = makeHome();
  mkdirSync(join(beside, "secrets"), { mode: 0o700 });
  cpSync(join(home, "secrets"), join(beside, "secrets"), { recursive: true });
  return beside;
}

/** Runs `work` as a node of that home that serves no requests. */
async function inHome(home: string, flags: readonly string[], work: (node: Node) => Promise<unknown>): Promise<void> {
  const loaded = loadConfig({ server: "node", schema: nodeSettings, flagNames: {}, argv: [...flags, `--home=${home}`, "--sandbox.runtime=gvisor"], about: "" });
  if (loaded === "help") return;
  const log = openLog("test", "fatal");
  const node = await openNode(home, loaded.settings, log, openMetrics(), "serve", "");
  await node.recover();
  await work(node);
  await closeParts(log, node.parts(false));
}

/** Creates a sandbox with a program that counts in memory, and a file. */
async function withCounter(node: TestNode): Promise<Sandbox> {
  const sandbox = await Sandbox.create("base", { ...connectionTo(node), timeoutMs: 3_000_000 });
  await sandbox.files.write("/home/user/kept", "kept");
  await sandbox.commands.run("sh -c 'N=0; while true; do N=$((N+1)); echo $N > /tmp/count; sleep 0.05; done'", { background: true });
  await sandbox.commands.run("until test -s /tmp/count; do sleep 0.05; done");
  return sandbox;
}

async function goesOn(sandbox: Sandbox): Promise<void> {
  assert.equal(await sandbox.files.read("/home/user/kept"), "kept");
  const count = async () => Number((await sandbox.commands.run("cat /tmp/count")).stdout);
  const before = await count();
  await until("the program to count on", async () => (await count()) > before || undefined);
}

void describe("transferred snapshots", needs("root", "envd", "base", "runsc", "object-server"), () => {
  void test("a snapshot is transferred as a file to a node of the same deployment, where its programs continue", async () => {
    const folder = mkdtempSync(join(tmpdir(), "svc-transfer-"));
    await using node = await startNode({ runtime: "gvisor" });
    const home = homeBeside(node.home);
    {
      await using other = await startNode({ runtime: "gvisor", home });
      const file = join(folder, "ready.svc");
      const source = await withCounter(node);
      await node.call(createSnapshot, { sandboxID: source.sandboxId, name: "ready:v1" });
      const exported = await cli(node, "snapshot", "export", "ready:v1", file);
      assert.deepEqual([exported.code, statSync(file).mode & 0o777], [0, 0o600], exported.stderr);
      assert.match((await cli(node, "snapshot", "export", "ready:v1", file)).stderr, /exists; --force replaces it/);
      const imported = await cli(other, "snapshot", "import", file, "--output", "json");
      assert.deepEqual((JSON.parse(imported.stdout) as { names: string[] }).names, ["ready:v1"], imported.stderr);
      await goesOn(await Sandbox.create("ready:v1", connectionTo(other)));
      assert.match((await cli(other, "snapshot", "import", file)).stderr, /was there already/);
      truncateSync(file, statSync(file).size - 5_000);
      assert.match((await cli(other, "snapshot", "import", file)).stderr, /it was truncated/);
      execFileSync("sh", ["-c", 'head -c 100000 /dev/urandom > "$1"', "sh", file]);
      const refused = await cli(other, "snapshot", "import", file);
      assert.deepEqual([refused.code, /not an entry of an exported snapshot/.test(refused.stderr)], [1, true], refused.stderr);
    }
    removeHome(home);
    rmSync(folder, { recursive: true });
  });

  void test("a snapshot of files can be imported by another deployment; one of memory is refused there with advice", async () => {
    const folder = mkdtempSync(join(tmpdir(), "svc-transfer-"));
    await using node = await startNode({ runtime: "gvisor" });
    await using stranger = await startNode({ runtime: "gvisor" });
    const source = await withCounter(node);
    await node.call(createSnapshot, { sandboxID: source.sandboxId, name: "memory" });
    await node.call(createSnapshot, { sandboxID: source.sandboxId, name: "files", memory: false });
    for (const name of ["memory", "files"]) assert.equal((await cli(node, "snapshot", "export", name, join(folder, name), "-q")).code, 0);
    assert.match((await cli(stranger, "snapshot", "import", join(folder, "memory"))).stderr, /memory of another deployment.*--files-only/s);
    assert.equal((await cli(stranger, "snapshot", "import", join(folder, "files"), "--name", "theirs")).code, 0);
    const copy = await Sandbox.create("theirs", connectionTo(stranger));
    assert.equal(await copy.files.read("/home/user/kept"), "kept");
    rmSync(folder, { recursive: true });
  });

  void test("a durable snapshot starts on a node that never saw it, and a durable pause is answered once it is in object storage", async () => {
    await using server = await startObjectServer();
    const flags = [`--objects.url=s3://${server.bucket}/svc`, `--objects.endpoint=${server.endpoint}`, "--snapshots.durable=true"];
    await using node = await startNode({ runtime: "gvisor", flags, env: server.env });
    const home = homeBeside(node.home);
    {
      await using other = await startNode({ runtime: "gvisor", home, flags, env: server.env });
      const source = await withCounter(node);
      const { snapshotID } = await node.call(createSnapshot, { sandboxID: source.sandboxId, name: "ready" });
      await goesOn(await Sandbox.create("ready", connectionTo(other)));
      await goesOn(await Sandbox.create(snapshotID, connectionTo(other)));
      assert.equal((other.log().match(/"a snapshot was imported"/g) ?? []).length, 1, "the second start moves no byte");
      const paused = await node.call(createSandbox, { templateID: "base", timeout: 600 });
      await node.call(pauseSandbox, { sandboxID: paused.sandboxID });
      assert.match(node.log(), new RegExp(`sandboxes/${paused.sandboxID}/c[0-9a-f]{24}`));
      assert.equal((await node.call(getSandbox, { sandboxID: paused.sandboxID })).state, "paused");
      await assert.rejects(other.call(createSandbox, { templateID: "nobody-has-this", timeout: 60 }), { name: "TEMPLATE_NOT_FOUND" });
    }
    removeHome(home);
  });

  void test("a paused sandbox continues in another home of its deployment, with its memory, its files and its token", async () => {
    const storage = mkdtempSync(join(tmpdir(), "svc-storage-"));
    const flags = [`--objects.url=file://${storage}`, "--snapshots.durable=true"];
    await using node = await startNode({ runtime: "gvisor", flags });
    const home = homeBeside(node.home);
    const sandbox = await withCounter(node);
    const { envdAccessToken } = await node.call(getSandbox, { sandboxID: sandbox.sandboxId });
    await node.call(pauseSandbox, { sandboxID: sandbox.sandboxId });
    const [checkpoint] = readdirSync(join(storage, "manifests/sandboxes", sandbox.sandboxId));
    await node.kill("SIGTERM");
    await inHome(node.home, flags, ({ transfer }) => transfer.releaseSandbox(sandbox.sandboxId, "node-other"));
    await inHome(home, flags, ({ transfer }) => transfer.importSandbox(`sandboxes/${sandbox.sandboxId}/${checkpoint}`, async () => {}));
    await node.start();
    assert.equal(await node.call(getSandbox, { sandboxID: sandbox.sandboxId }).catch((error: Error) => error.name), "SANDBOX_NOT_FOUND");
    {
      await using other = await startNode({ runtime: "gvisor", home, flags });
      await goesOn(await Sandbox.connect(sandbox.sandboxId, connectionTo(other)));
      assert.equal((await other.call(getSandbox, { sandboxID: sandbox.sandboxId })).envdAccessToken, envdAccessToken);
      await until("its export to go with the resume", () => !existsSync(join(storage, `manifests/sandboxes/${sandbox.sandboxId}/${checkpoint}`)) || undefined);
    }
    removeHome(home);
    rmSync(storage, { recursive: true });
  });

  void test("a node that is killed during an export or an import has nothing of it after its start, and can repeat it", async () => {
    const storage = mkdtempSync(join(tmpdir(), "svc-storage-"));
    await using node = await startNode({ runtime: "gvisor", flags: [`--objects.url=file://${storage}`, "--objects.bandwidth_mb_per_second=2"] });
    const sandbox = await withCounter(node);
    await node.call(createSnapshot, { sandboxID: sandbox.sandboxId, name: "kept", memory: false });
    await until("the export to be under way", () => (existsSync(join(storage, "chunks")) && readdirSync(join(storage, "chunks")).length > 0) || undefined);
    assert.equal(existsSync(join(storage, "manifests")), false);
    await node.restart("SIGKILL", { flags: ["--objects.bandwidth_mb_per_second=0"] });
    await until("it to be exported", () => existsSync(join(storage, "manifests/snapshots")) || undefined);

    const file = Buffer.from(await (await fetch(`${node.url}/snapshots/kept/export`, { headers: { "x-api-key": node.apiKey } })).arrayBuffer());
    const { snapshotID } = await node.call(getSnapshot, { snapshotID: "kept" });
    await node.call(deleteTemplate, { templateID: snapshotID });
    const before = readdirSync(join(node.home, "snapshots"));
    const half = new ReadableStream({
      start: (controller) => controller.enqueue(file.subarray(0, file.length / 2)),
    });
    const importing = fetch(`${node.url}/snapshots/import`, {
      method: "POST",
      headers: { "x-api-key": node.apiKey },
      body: half,
      duplex: "half",
    } as RequestInit);
    await until("the import to be under way", () => readdirSync(join(node.home, "snapshot-transfer")).some((name) => name.startsWith("in-")) || undefined);
    await Promise.all([node.restart("SIGKILL"), assert.rejects(importing)]);
    assert.deepEqual(readdirSync(join(node.home, "snapshots")), before);
    assert.deepEqual(
      readdirSync(join(node.home, "snapshot-transfer")).filter((name) => /^(in|pack)-/.test(name)),
      [],
    );
    const again = await fetch(`${node.url}/snapshots/import`, { method: "POST", headers: { "x-api-key": node.apiKey }, body: file });
    assert.equal(again.status, 201, await again.text());
    const copy = await Sandbox.create("kept", connectionTo(node));
    assert.equal(await copy.files.read("/home/user/kept"), "kept");
    rmSync(storage, { recursive: true });
  });

  void test("unavailable object storage prevents neither pause nor resume; pending uploads are reported, and sent when it is back", async () => {
    const flags = ["--objects.url=s3://nowhere/svc", "--objects.endpoint=http://127.0.0.1:1"];
    const env = { AWS_ACCESS_KEY_ID: "id", AWS_SECRET_ACCESS_KEY: "secret" };
    await using node = await startNode({ runtime: "gvisor", flags, env });
    const sandbox = await withCounter(node);
    await node.call(pauseSandbox, { sandboxID: sandbox.sandboxId });
    const metric = async () => /^svc_node_exports_waiting (\d+)/m.exec(await (await fetch(`${node.url}/metrics`)).text())?.[1];
    await until("the export to be waiting", async () => (await metric()) === "1" || undefined);
    await goesOn(await Sandbox.connect(sandbox.sandboxId, connectionTo(node)));
    await node.call(pauseSandbox, { sandboxID: sandbox.sandboxId });
    await using server = await startObjectServer();
    await node.restart("SIGKILL", { flags: [`--objects.url=s3://${server.bucket}/svc`, `--objects.endpoint=${server.endpoint}`], env: server.env });
    await until("it to be exported", async () => ((await metric()) === "0" && /exported to object storage/.test(node.log())) || undefined);
  });
});
