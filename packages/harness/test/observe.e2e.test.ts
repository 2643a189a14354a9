// Metrics, logs, events and audit log of a real node, requested with the E2B SDK, the E2B CLI and plain requests.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { getSandboxesMetrics, getSandboxLogsV2, lifecycleEvent } from "@svc/contract/observe.ts";
import { createSandbox, deleteSandbox } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { openStream } from "../src/event-stream.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

const MIB = 1024 * 1024;
const gvisor = needs("root", "runsc", "envd", "base");
const connectionOf = (node: TestNode) => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });

const burn = "import time\nblock = bytearray(120 << 20)\nfor at in range(0, len(block), 4096): block[at] = 1\nwhile True: pass";

void test("a sandbox's metrics follow its activity: CPU, memory and disk, from its first moment on", gvisor, async () => {
  await using node = await startNode({ runtime: "gvisor" });
  const sandbox = await Sandbox.create("base", { ...connectionOf(node), timeoutMs: 600_000 });
  const [first] = await sandbox.getMetrics();
  assert.ok(first !== undefined && first.memTotal > 0 && first.diskTotal > 0 && first.cpuCount > 0 && first.memUsed > MIB, JSON.stringify(first));
  assert.ok(Math.abs(first.timestamp.getTime() - Date.now()) < 60_000);
  await sandbox.commands.run(`head -c ${60 * MIB} /dev/urandom > /home/user/big`);
  await sandbox.commands.run(`python3 -c '${burn}'`, { background: true });
  const busy = await until(
    "figures of a busy sandbox",
    async () => {
      const last = (await sandbox.getMetrics()).at(-1);
      return last !== undefined && last.cpuUsedPct > 10 && last.memUsed > first.memUsed + 100 * MIB && last.diskUsed > first.diskUsed + 50 * MIB
        ? last
        : undefined;
    },
    500,
  );
  assert.ok(busy.cpuUsedPct <= 100 * busy.cpuCount * 1.2, `${busy.cpuUsedPct} % of ${busy.cpuCount} CPUs`);
  const since = await sandbox.getMetrics({ start: new Date(Date.now() + 3_600_000) });
  assert.deepEqual(since, []);

  const { sandboxes } = await node.call(getSandboxesMetrics, { sandbox_ids: `${sandbox.sandboxId},inotthere` });
  assert.deepEqual(Object.keys(sandboxes), [sandbox.sandboxId]);
  // The sum comes from the last periodic sample, which may be older than the sandbox.
  const text = await until("the sum over all sandboxes", async () => {
    const metrics = await (await fetch(`${node.url}/metrics`)).text();
    return Number(/^svc_node_sandbox_memory_bytes (\S+)$/m.exec(metrics)?.[1]) > 0 ? metrics : undefined;
  });
  assert.ok(!text.includes(sandbox.sandboxId), "no sandbox's id is a label");
  await sandbox.kill();
  await assert.rejects(Sandbox.getMetrics(sandbox.sandboxId, connectionOf(node)), /not found/i);
});

void test("a sandbox's log shows its life and its processes, also in the E2B CLI, and for an hour after its end", gvisor, async () => {
  await using node = await startNode({ runtime: "gvisor" });
  const sandbox = await Sandbox.create("base", { ...connectionOf(node), envs: { SECRET: "hidden-value" } });
  const { sandboxId: sandboxID } = sandbox;
  await sandbox.commands.run("echo hello; exit 3").catch(() => undefined);
  await sandbox.commands.run("sleep 0.2", { user: "root" });
  const read = async (query: object = {}) => (await node.call(getSandboxLogsV2, { sandboxID, ...query })).logs;
  const all = await until("four entries of processes", async () => {
    const logs = await read();
    return logs.filter(({ fields }) => fields["kind"] === "process").length >= 4 ? logs : undefined;
  });
  assert.equal(all[0]?.fields["event"], "sandbox.created");
  const processes = all.filter(({ fields }) => fields["kind"] === "process");
  assert.deepEqual(
    processes.map(({ level, fields }) => [level, fields["event"], fields["user"], fields["exitCode"]]),
    [
      ["info", "started", "user", undefined],
      ["warn", "ended", "user", "3"],
      ["info", "started", "root", undefined],
      ["info", "ended", "root", "0"],
    ],
  );
  assert.match(processes[0]?.message ?? "", /started by user: \/bin\/bash -l -c 'echo hello; exit 3'/);
  assert.ok(!JSON.stringify(all).includes("hidden-value"), "variables are in no log");
  assert.deepEqual(
    (await read({ direction: "backward", limit: 2 })).map(({ message }) => message),
    all
      .slice(-2)
      .reverse()
      .map(({ message }) => message),
  );
  assert.deepEqual((await read({ level: "warn", kind: "process", search: "EXIT STATUS 3" })).length, 1);

  const shown = await e2b(node, "sandbox", "logs", sandboxID, "--format", "json");
  assert.match(shown, /"logger":"process"/);
  assert.match(shown, /sandbox created/);

  await node.restart("SIGKILL");
  assert.deepEqual(
    (await read()).map(({ message }) => message),
    all.map(({ message }) => message),
    "the same after a restart, nothing twice",
  );
  await node.call(deleteSandbox, { sandboxID });
  const last = (await read()).at(-1);
  assert.deepEqual([last?.fields["event"], last?.fields["reason"]], ["sandbox.ended", "killed"]);
  await assert.rejects(node.call(getSandboxLogsV2, { sandboxID: "iaaaaaaaaaaaaaaaaaaa" }), { name: "SANDBOX_NOT_FOUND" });
});

void test("the events of a node continue across its death, through the gateway, and end with a clean stop", gvisor, async () => {
  await using node = await startNode({ runtime: "gvisor" });
  const headers = () => ({ "x-api-key": node.apiKey });
  await using stream = await openStream(`${node.url}/events`, headers());
  const { sandboxID } = await node.call(createSandbox, { templateID: "base" });
  const [created] = await stream.take(1);
  assert.equal(created?.event, "sandbox.created");
  const other = await node.call(createSandbox, { templateID: "base" });
  await node.restart("SIGKILL");
  await node.call(deleteSandbox, { sandboxID });
  await using back = await openStream(`${node.url}/events`, { ...headers(), "last-event-id": String(created?.id) });
  const later = (await back.take(2)).map(({ data }) => lifecycleEvent.parse(JSON.parse(data)));
  assert.deepEqual(
    later.map(({ type, sandboxID: id, details }) => [type, id, details["reason"]]),
    [
      ["sandbox.created", other.sandboxID, undefined],
      ["sandbox.ended", sandboxID, "killed"],
    ],
  );
  assert.equal((await fetch(`${node.url}/events`)).status, 401);
  await node.kill("SIGTERM");
  assert.equal(await back.next(), undefined);
  assert.doesNotMatch(node.log(), /not stopped within|did not close/);
});

void test("the audit log records who changed what and who was refused, and contains no secret", gvisor, async () => {
  await using node = await startNode({ runtime: "gvisor" });
  const sandbox = await Sandbox.create("base", { ...connectionOf(node), metadata: { purpose: "metadata-value" }, envs: { TOKEN: "variable-value" } });
  await sandbox.commands.run("echo command-text");
  await sandbox.files.write("/home/user/file", "file-content");
  await fetch(`${node.url}/v2/sandboxes`, { headers: { "x-api-key": "not-the-key-at-all-0123456789abcdef" } });
  await sandbox.setTimeout(1_000);
  const path = join(node.home, "audit.log");
  const told = await until("the end by timeout in the audit log", () => {
    const lines = readFileSync(path, "utf8").trimEnd().split("\n");
    const entries = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    return entries.some(({ what }) => what === "sandbox.ended") ? entries : undefined;
  });
  const summary = told.map(({ kind, operation, what, status, errorCode, reason, client }) => [kind, operation ?? what, status ?? reason, errorCode, client]);
  assert.deepEqual(summary, [
    ["request", "createSandbox", 201, undefined, "127.0.0.1"],
    ["request", "listSandboxes", 401, "UNAUTHENTICATED", "127.0.0.1"],
    ["request", "setSandboxTimeout", 204, undefined, "127.0.0.1"],
    ["node", "sandbox.ended", "timeout", undefined, undefined],
  ]);
  assert.match(String(told[0]?.["userAgent"]), /e2b-js-sdk/);
  assert.equal(statSync(path).mode & 0o777, 0o600);
  const text = readFileSync(path, "utf8");
  const secrets = [node.apiKey, "not-the-key-at-all-0123456789abcdef", "metadata-value", "variable-value", "command-text", "file-content"];
  const token = (sandbox as unknown as { envdAccessToken?: string }).envdAccessToken;
  assert.match(token ?? "", /^[0-9a-f]{64}$/);
  for (const secret of [...secrets, token ?? ""]) assert.ok(!text.includes(secret), `the audit log holds '${secret.slice(0, 12)}…'`);
});

async function e2b(node: TestNode, ...args: string[]): Promise<string> {
  const program = join(dirname(createRequire(import.meta.url).resolve("@e2b/cli/package.json")), "dist/index.js");
  const env = { ...process.env, E2B_API_URL: node.url, E2B_SANDBOX_URL: node.url, E2B_API_KEY: node.apiKey, HOME: node.home };
  const child = spawn(process.execPath, [program, ...args], { env, stdio: ["ignore", "pipe", "pipe"], timeout: 60_000 });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => void (said += chunk.toString()));
  await new Promise((resolve) => child.once("close", resolve));
  return said;
}
