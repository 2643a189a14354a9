// Deaths of sandboxes and their effect on neighbours; bursts of creates; a machine full of warm sandboxes.
import assert from "node:assert/strict";
import { appendFileSync, existsSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { createSnapshot, forkSandbox, pauseSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { killIfThere } from "../src/crash.ts";
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

void test(
  "a gVisor sandbox that needs more memory than it has dies as oom, its streams end, and its neighbour goes on",
  needs("root", "envd", "base", "runsc"),
  async () => {
    await using node = await startNode({ runtime: "gvisor", flags: ["--sandbox.memory_mb=256"] });
    const [bomb, neighbour] = await Promise.all([Sandbox.create("base", connection(node)), Sandbox.create("base", connection(node))]);
    await assert.rejects(bomb.commands.run(GREEDY, { timeoutMs: 0 }));
    assert.equal(await reasonOf(node, bomb.sandboxId), "oom");
    assert.equal((await neighbour.commands.run("echo alive")).stdout, "alive\n");
  },
);

void test(
  "with runc the kernel ends the process that needs more memory than there is, and its sandbox goes on",
  needs("root", "envd", "base", "runc"),
  async () => {
    await using node = await startNode({ runtime: "runc", flags: ["--sandbox.memory_mb=256"] });
    const bomb = await Sandbox.create("base", connection(node));
    await assert.rejects(bomb.commands.run(GREEDY, { timeoutMs: 0 }), { name: "CommandExitError" });
    assert.equal((await bomb.commands.run("echo alive")).stdout, "alive\n");
  },
);

for (const [runtime, program] of [
  ["gvisor", "runsc"],
  ["runc", "runc"],
] as const) {
  void describe(`deaths on ${runtime}`, needs("root", "envd", "base", program), () => {
    void test("a full disk is an error inside, and the sandbox continues", async () => {
      await using node = await startNode({ runtime, flags: ["--sandbox.disk_size_mb=64"] });
      const sandbox = await Sandbox.create("base", connection(node));
      const result = await sandbox.commands.run("dd if=/dev/zero of=big bs=1M count=200 2>&1 || true; rm big; echo fine > small; cat small", { timeoutMs: 0 });
      assert.match(result.stdout, /No space left on device/);
      assert.match(result.stdout, /fine/);
    });
  });
}

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
