// Deaths of sandboxes and their effect on neighbours; bursts of creates; a machine full of warm sandboxes.
import assert from "node:assert/strict";
import { appendFileSync, existsSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { createSnapshot, forkSandbox, pauseSandbox } from "@svc/contract/lifecycle.ts";
import { getSandboxLogsV2, lifecycleEvent } from "@svc/contract/observe.ts";
import { createSandbox, deleteSandbox } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { killIfThere } from "../src/crash.ts";
import { openStream } from "../src/event-stream.ts";
import { leftovers, membersOf } from "../src/leftovers.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

const connection = (node: TestNode) => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey, timeoutMs: 600_000 });

async function reasonOf(node: TestNode, sandboxID: string): Promise<string> {
  return until(`the end of ${sandboxID}`, async () => {
    const response = await fetch(`${node.url}/sandboxes/${sandboxID}`, { headers: { "x-api-key": node.apiKey } });
    return response.status === 404 ? ((await response.json()) as { reason?: string }).reason : undefined;
  });
}

const GREEDY = "python3 -c 'x = bytearray(900_000_000)\nfor i in range(0, len(x), 4096): x[i] = 1\nimport time; time.sleep(600)'";

for (const [runtime, program] of [
  ["gvisor", "runsc"],
  ["runc", "runc"],
] as const) {
  void describe(`deaths on ${runtime}`, needs("root", "envd", "base", program), () => {
    void test("a program that exceeds the memory limit is ended alone, and an event and the sandbox's log say so", async () => {
      await using node = await startNode({ runtime, flags: ["--sandbox.memory_mb=256"] });
      const [bomb, neighbour] = await Promise.all([Sandbox.create("base", connection(node)), Sandbox.create("base", connection(node))]);
      await bomb.files.write("/home/user/before", "written before");
      const kept = await bomb.commands.run("sleep 3000", { background: true, timeoutMs: 0 });
      await assert.rejects(bomb.commands.run(GREEDY, { timeoutMs: 0 }), { name: "CommandExitError" });
      assert.equal((await bomb.commands.run(`kill -0 ${kept.pid} && cat before`)).stdout, "written before");
      assert.equal((await neighbour.commands.run("echo alive")).stdout, "alive\n");
      await using stream = await openStream(`${node.url}/events?after=0&types=sandbox.limit_reached`, { "x-api-key": node.apiKey });
      const told = await until("the event", () => stream.next());
      const { sandboxID, details } = lifecycleEvent.parse(JSON.parse(told?.data ?? ""));
      assert.equal(sandboxID, bomb.sandboxId);
      assert.deepEqual(details, { limit: "memory", killed: 1, refused: 0, ...(runtime === "gvisor" ? { program: "python3" } : {}) });
      const { logs } = await node.call(getSandboxLogsV2, { sandboxID: bomb.sandboxId, search: "a limit of the sandbox took effect" });
      assert.deepEqual(
        logs.map(({ level }) => level),
        ["warn"],
      );
    });

    void test("a full disk is an error inside, and the sandbox continues", async () => {
      await using node = await startNode({ runtime, flags: ["--sandbox.disk_size_mb=64"] });
      const sandbox = await Sandbox.create("base", connection(node));
      const result = await sandbox.commands.run("dd if=/dev/zero of=big bs=1M count=200 2>&1 || true; rm big; echo fine > small; cat small", { timeoutMs: 0 });
      assert.match(result.stdout, /No space left on device/);
      assert.match(result.stdout, /fine/);
    });
  });
}

void test("free, /proc/meminfo and the metrics of a gVisor sandbox with 300 processes say the same", needs("root", "envd", "base", "runsc"), async () => {
  await using node = await startNode({ runtime: "gvisor", flags: ["--sandbox.memory_mb=512"] });
  const sandbox = await Sandbox.create("base", connection(node));
  const idle = await until("the first metrics", async () => (await sandbox.getMetrics()).at(-1));
  await sandbox.commands.run("for i in $(seq 300); do sleep 3000 >/dev/null 2>&1 & done", { timeoutMs: 0 });
  const MIB = 2 ** 20;
  await until("both to agree", async () => {
    const { stdout } = await sandbox.commands.run("free -b | sed -n 2p; grep -E 'MemTotal|MemAvailable' /proc/meminfo");
    const [total = 0, used = 0] = (/^Mem: +(\d+) +(\d+)/m.exec(stdout)?.slice(1) ?? []).map(Number);
    const [meminfoTotal = 0, available = 0] = [...stdout.matchAll(/^Mem\w+: +(\d+) kB/gm)].map(([, kB]) => Number(kB) * 1024);
    assert.deepEqual([total, meminfoTotal], [512 * MIB, 512 * MIB]);
    const shown = (await sandbox.getMetrics()).at(-1)?.memUsed ?? 0;
    // Each process costs the host 0.45 MiB, which `free` did not show.
    const isShown = Math.min(shown, used, total - available) > idle.memUsed + 300 * 0.3 * MIB;
    return isShown && Math.abs(shown - used) < 16 * MIB && Math.abs(used - (total - available)) < 16 * MIB ? true : undefined;
  });
});

void test(
  "a gVisor sandbox whose own kernel gives up ends as crashed, and the node's log holds its last words",
  needs("root", "envd", "base", "runsc"),
  async () => {
    await using node = await startNode({ runtime: "gvisor" });
    const { sandboxID } = await node.call(createSandbox, { templateID: "base" });
    const logs = leftovers(node.home).directories.map((directory) => join(node.home, "sandboxes", directory, "panic.log"));
    // Only the kernel inside has this file open.
    assert.deepEqual(logs.map(existsSync), [true]);
    appendFileSync(logs[0] ?? "", "panic: no thread to be had\n\ngoroutine 1 [running]:\nmain.main()\n");
    for (const pid of membersOf(node.home, sandboxID)) killIfThere(pid);
    assert.equal(await reasonOf(node, sandboxID), "crashed");
    const line = await until("a line in the log", () =>
      node
        .log()
        .split("\n")
        .find((text) => text.includes("the kernel inside a sandbox gave up")),
    );
    assert.match(line, new RegExp(`"runtimeID":"${sandboxID}".*"says":"panic: no thread to be had"`));
  },
);

void test("a request to a sandbox right after its death is answered with the reason of its end", needs("root", "envd", "base", "runsc"), async () => {
  await using node = await startNode({ runtime: "gvisor" });
  const verbs: readonly ((sandboxID: string) => Promise<unknown>)[] = [
    (sandboxID) => node.call(pauseSandbox, { sandboxID }),
    (sandboxID) => node.call(pauseSandbox, { sandboxID, memory: false }),
    (sandboxID) => node.call(pauseSandbox, { sandboxID, requireHealthyGuest: true }),
    (sandboxID) => node.call(forkSandbox, { sandboxID }),
    (sandboxID) => node.call(createSnapshot, { sandboxID }),
  ];
  for (const ask of verbs) {
    const { sandboxID } = await node.call(createSandbox, { templateID: "base" });
    const ended = { name: "SANDBOX_NOT_FOUND", message: /it ended at .* \(crashed\)/ };
    // The watch checks twice a second and has not noticed the death yet.
    for (const pid of membersOf(node.home, sandboxID)) killIfThere(pid);
    await assert.rejects(ask(sandboxID), ended);
  }
  await until("nothing of them", () => (leftovers(node.home).directories.length === 0 ? true : undefined));
});

void test("a burst of creates is answered completely, and the pool is full again after it", needs("root", "envd", "base", "runc"), async () => {
  await using node = await startNode({ runtime: "runc", flags: ["--pool.templates=base=4"] });
  const made = await Promise.all(Array.from({ length: 40 }, () => node.call(createSandbox, { templateID: "base" })));
  assert.equal(new Set(made.map((each) => each.sandboxID)).size, 40);
  await Promise.all(made.map(({ sandboxID }) => node.call(deleteSandbox, { sandboxID })));
  await until("a full pool", async () =>
    /svc_node_pool_sandboxes\{template="base"\} 4/.test(await (await fetch(`${node.url}/metrics`)).text()) ? true : undefined,
  );
  await until("only the pool", () => (leftovers(node.home).directories.length === 4 ? true : undefined));
  await node.kill("SIGTERM");
  assert.deepEqual(leftovers(node.home).directories, []);
});

void test("warm sandboxes of a killed node are adopted by the next one and can be claimed", needs("root", "envd", "base", "runc"), async () => {
  const flags = ["--pool.templates=base=3"];
  await using node = await startNode({ runtime: "runc", flags });
  const full = async () => (/svc_node_pool_sandboxes\{template="base"\} 3/.test(await (await fetch(`${node.url}/metrics`)).text()) ? true : undefined);
  await until("a full pool", full);
  const before = leftovers(node.home).directories;
  await node.restart("SIGKILL");
  await until("the pool again", full);
  const sandbox = await Sandbox.create("base", connection(node));
  assert.ok(before.includes(sandbox.sandboxId));
  assert.equal((await sandbox.commands.run("echo claimed")).stdout, "claimed\n");
});
