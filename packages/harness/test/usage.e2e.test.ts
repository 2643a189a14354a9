// The usage of sandboxes, as `GET /usage` shows it: against the kernel's own counters, over a kill of the node, and apart by tenant.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { SvcClient } from "@svc/contract/client.ts";
import { createKey } from "@svc/contract/keys.ts";
import { getSandboxMetrics, type LifecycleEvent } from "@svc/contract/observe.ts";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { getUsage, type UsageRow } from "@svc/contract/usage.ts";
import { Sandbox } from "e2b";
import { startFrontedNodes } from "../src/fronted-nodes.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

const MIB = 1024 * 1024;
const CLI = fileURLToPath(new URL("../../cli/src/main.ts", import.meta.url));
const connectionOf = (node: TestNode) => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });

/** The processor time that the kernel has counted for the sandbox, in seconds. */
function cpuOf(sandboxID: string): number {
  const folders = execFileSync("find", ["/sys/fs/cgroup", "-maxdepth", "5", "-type", "d", "-name", sandboxID], { encoding: "utf8" }).trim().split("\n");
  for (const folder of folders) {
    const old = join(folder, "cpuacct.usage");
    if (existsSync(old)) return Number(readFileSync(old, "utf8")) / 1e9;
    const stat = join(folder, "cpu.stat");
    const found = existsSync(stat) ? /^usage_usec (\d+)$/m.exec(readFileSync(stat, "utf8")) : null;
    if (found !== null) return Number(found[1]) / 1e6;
  }
  throw new Error(`no control group of ${sandboxID} was found: ${folders.join(", ")}`);
}

async function rowOf(node: Pick<TestNode, "call">, value: string, by: "sandbox" | "tenant" = "sandbox"): Promise<UsageRow | undefined> {
  return (await node.call(getUsage, { by })).rows.find((row) => row.value === value);
}

/** Waits for a row that has been accounted up to a moment after this call. */
async function accounted(node: TestNode, sandboxID: string): Promise<UsageRow> {
  const before = (await rowOf(node, sandboxID))?.runningSeconds ?? 0;
  // Two readings: the first of them may have begun before this call.
  let [last, readings] = [before, 0];
  return until("two further readings of the sandbox", async () => {
    const row = await rowOf(node, sandboxID);
    if (row !== undefined && row.runningSeconds > last) [last, readings] = [row.runningSeconds, readings + 1];
    return readings >= 2 ? row : undefined;
  });
}

const burn = (seconds: number) => `python3 -c 'import time\nwhile time.process_time() < ${seconds}: pass'`;
const hold = "python3 -c 'import time\nblock = bytearray(200 << 20)\nfor at in range(0, len(block), 4096): block[at] = 1\ntime.sleep(100000)'";

void test(
  "usage agrees with the kernel's counters, over a kill of the node, a pause and the end of the sandbox",
  needs("root", "runsc", "envd", "base"),
  async () => {
    await using node = await startNode({ runtime: "gvisor" });
    const sandbox = await Sandbox.create("base", { ...connectionOf(node), timeoutMs: 3_000_000, metadata: { customer: "ann" } });
    const { sandboxId: sandboxID } = sandbox;
    const beganAt = cpuOf(sandboxID);
    await sandbox.commands.run(burn(2), { timeoutMs: 600_000 });
    await sandbox.files.write("/home/user/in", new Blob([new Uint8Array(8 * MIB)]));
    const first = await accounted(node, sandboxID);
    assert.ok(first.networkInBytes >= 8 * MIB && first.networkInBytes < 16 * MIB, `${first.networkInBytes} bytes came in`);

    // The sandbox works while its node is gone: its counters go on, and the next process accounts for them.
    await sandbox.commands.run(`setsid nohup ${burn(60)} > /dev/null 2>&1 &`);
    await node.kill("SIGKILL");
    const atKill = cpuOf(sandboxID);
    await until("work while the node is gone", async () => (cpuOf(sandboxID) > atKill + 1 ? true : undefined), 200, 180_000);
    const atStart = cpuOf(sandboxID) - beganAt;
    await node.start();
    await sandbox.commands.run("pkill python3");
    const counts = async () => ((await rowOf(node, sandboxID))?.cpuSeconds ?? 0) > atStart * 0.95 - 0.5;
    await until("the work of both times", async () => ((await counts()) ? true : undefined), 200, 180_000);
    const [counted, settled] = [cpuOf(sandboxID) - beganAt, await accounted(node, sandboxID)];
    const later = cpuOf(sandboxID) - beganAt;
    assert.ok(settled.cpuSeconds > counted * 0.95 - 0.5 && settled.cpuSeconds < later * 1.05 + 0.5, `${settled.cpuSeconds} of ${counted} to ${later} s`);
    assert.ok(settled.runningSeconds > first.runningSeconds);

    // The memory stands still from then on, so its sum grows by its size times the time.
    await sandbox.commands.run(hold, { background: true });
    const held = await until("a sample with the program's memory", async () => {
      const memory = ((await node.call(getSandboxMetrics, { sandboxID })).at(-1)?.memUsed ?? 0) / 1024 ** 3;
      return memory > 0.19 ? memory : undefined;
    });
    const before = await accounted(node, sandboxID);
    const grown = await accounted(node, sandboxID);
    const average = (grown.memoryGiBSeconds - before.memoryGiBSeconds) / (grown.runningSeconds - before.runningSeconds);
    assert.ok(average > held * 0.8 && average < held * 1.2, `${average} GiB on average, ${held} GiB sampled`);

    assert.equal(await sandbox.pause(), true);
    const atPause = await rowOf(node, sandboxID);
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    const paused = await rowOf(node, sandboxID);
    assert.deepEqual([paused?.memoryGiBSeconds, paused?.runningSeconds], [atPause?.memoryGiBSeconds, atPause?.runningSeconds]);
    await sandbox.connect();
    const resumed = await until("the time that it was paused", async () => {
      const row = await rowOf(node, sandboxID);
      return row !== undefined && row.pausedSeconds > 0 ? row : undefined;
    });
    assert.ok(resumed.pausedSeconds >= 2.9, `paused for ${resumed.pausedSeconds} s`);
    assert.ok(resumed.diskGiBSeconds > (atPause?.diskGiBSeconds ?? 0), "a paused sandbox uses disk");

    await sandbox.kill();
    const total = await rowOf(node, sandboxID);
    const ended: LifecycleEvent[] = [];
    for await (const event of new SvcClient({ baseURL: node.url, apiKey: node.apiKey }).events({ since: "0", types: ["sandbox.ended"] })) {
      ended.push(event);
      break;
    }
    const { cpuSeconds, memoryGiBSeconds, pausedSeconds } = ended[0]?.details ?? {};
    const rounded = (amount = 0) => Math.round(amount * 1000) / 1000;
    assert.deepEqual(
      [cpuSeconds, memoryGiBSeconds, pausedSeconds],
      [total?.cpuSeconds, total?.memoryGiBSeconds, total?.pausedSeconds].map(rounded),
      "the event of the end has the same sums",
    );

    await node.restart("SIGKILL");
    const kept = await rowOf(node, sandboxID);
    assert.ok(kept !== undefined && kept.cpuSeconds >= settled.cpuSeconds, "an ended sandbox stays accounted, also after a kill");
    const { rows } = await node.call(getUsage, { by: "label", label: "customer" });
    assert.deepEqual(
      rows.map(({ value, sandboxes }) => [value, sandboxes]),
      [["ann", 1]],
    );
  },
);

void test("tenants see their own usage alone, over all nodes, and a node that is lost is named", needs("root", "runc", "envd", "base"), async () => {
  await using fronted = await startFrontedNodes({ nodes: 2 });
  const { gateway, nodes } = fronted;
  const keys = await Promise.all(["acme", "globex"].map((tenant) => gateway.call(createKey, { name: `key of ${tenant}`, tenant })));
  const clients = keys.map(({ apiKey }) => new SvcClient({ baseURL: gateway.url, apiKey }));
  const [acme, globex] = clients;
  const ids = await Promise.all(clients.map(async (client, at) => (await client.create({ templateID: "base", metadata: { team: `t${at}` } })).sandboxID));
  const own = await gateway.call(createSandbox, { templateID: "base" });

  const all = await until("usage of three sandboxes", async () => {
    const { rows } = await gateway.call(getUsage, { by: "sandbox" });
    return [...ids, own.sandboxID].every((id) => rows.some(({ value, runningSeconds }) => value === id && runningSeconds > 0)) ? rows : undefined;
  });
  assert.equal(all.length, 3);
  for (const [at, client] of [acme, globex].entries()) {
    for (const by of ["sandbox", "key", "tenant"] as const) {
      const { rows } = (await client?.usage({ by })) ?? { rows: [] };
      const expected = { sandbox: ids[at], key: keys[at]?.id, tenant: keys[at]?.tenant }[by];
      assert.deepEqual(
        rows.map(({ value }) => value),
        [expected],
        `by ${by}`,
      );
    }
    const { rows } = (await client?.usage({ by: "label", label: "team" })) ?? { rows: [] };
    assert.deepEqual(
      rows.map(({ value }) => value),
      [`t${at}`],
    );
  }
  const tenants = await gateway.call(getUsage, {});
  assert.deepEqual([tenants.rows.map(({ value }) => value), tenants.missingNodes], [["acme", "deployment", "globex"], []]);

  const env = { ...process.env, SDK_API_KEY: gateway.apiKey };
  const run = (...args: string[]) => execFileSync(process.execPath, [CLI, "usage", "--url", gateway.url, ...args], { encoding: "utf8", env });
  const lines = run("--by", "tenant", "--output", "csv").trim().split("\r\n");
  assert.match(lines[0] ?? "", /^tenant,sandboxes,cpuSeconds,memoryGiBSeconds,/);
  assert.match(lines[1] ?? "", /^acme,1,\d/);
  assert.match(run("--by", "label:team"), /^TEAM +SANDBOXES .*\n- +1 /);
  assert.equal((JSON.parse(run("--format", "json", "--by", "sandbox")) as { rows: unknown[] }).rows.length, 3);

  const metrics = await Promise.all(nodes.map(async ({ url }) => (await fetch(`${url}/metrics`)).text()));
  assert.match(metrics.join(""), /^svc_node_usage_cpu_seconds_total\{tenant="acme"\} /m);
  assert.ok(!ids.some((id) => metrics.join("").includes(id)), "no sandbox's id is a label");

  await nodes[0]?.kill("SIGKILL");
  const partial = await until("the lost node in the answer", async () => {
    const answer = await gateway.call(getUsage, { by: "sandbox" });
    return answer.missingNodes.length > 0 ? answer : undefined;
  });
  assert.equal(partial.missingNodes.length, 1);
  await nodes[0]?.start();
  const again = await until("the node's usage again", async () => {
    const answer = await gateway.call(getUsage, { by: "sandbox" });
    return answer.missingNodes.length === 0 ? answer : undefined;
  });
  assert.equal(again.rows.length, 3);
});
