// SIGKILL of the node at every step of create and delete: the next start leaves no orphans and loses nothing acknowledged.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createSandbox, deleteSandbox, getSandbox, listSandboxes } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { assertNothingBut, killDuring, killIfThere, type MomentsOf } from "../src/crash.ts";
import { membersOf } from "../src/leftovers.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

const createStages = ["network", "runtime", "started", "envd", "identity", "claim"] as const;
const deleteStages = ["destroy", "detach", "forget"] as const;

export function crashSuite(runtime: "gvisor" | "runc" | "bubblewrap", programs: readonly string[], momentsOf: MomentsOf): void {
  void describe(`kill -9 of the node on ${runtime}`, needs("root", "envd", "base", ...programs), () => {
    void test("at any step of a create: an unacknowledged sandbox is gone, or complete; an older sandbox continues", async () => {
      await using node = await startNode({ runtime, flags: ["--log-level=debug"] });
      const older = await Sandbox.create("base", { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey, timeoutMs: 3_000_000 });
      await older.commands.run("echo kept > kept");
      for (const [at, stage] of createStages.entries()) {
        for (const delayMs of momentsOf(at, [0, 15])) {
          await killDuring(node, stage, delayMs, () => node.call(createSandbox, { templateID: "base" }));
          await node.start();
          const left = await node.call(listSandboxes, {});
          for (const { sandboxID } of left) if (sandboxID !== older.sandboxId) await works(node, sandboxID);
          await assertNothingBut(
            node,
            left.map((each) => each.sandboxID),
            `${stage} + ${delayMs} ms`,
          );
          for (const { sandboxID } of left) if (sandboxID !== older.sandboxId) await node.call(deleteSandbox, { sandboxID });
        }
      }
      assert.equal((await older.commands.run("cat kept")).stdout, "kept\n");
    });

    void test("at any step of a delete: the sandbox is gone, and its parts with it", async () => {
      await using node = await startNode({ runtime, flags: ["--log-level=debug"] });
      for (const [at, stage] of deleteStages.entries()) {
        for (const delayMs of momentsOf(at, [0, 5])) {
          const { sandboxID } = await node.call(createSandbox, { templateID: "base" });
          await killDuring(node, stage, delayMs, () => node.call(deleteSandbox, { sandboxID }));
          await node.start();
          await assert.rejects(node.call(getSandbox, { sandboxID }), { name: "SANDBOX_NOT_FOUND" });
          await assertNothingBut(node, [], `${stage} + ${delayMs} ms`);
        }
      }
    });

    void test("while the node is down sandboxes continue; the next one adopts them, and reports which died meanwhile", async () => {
      await using node = await startNode({ runtime });
      const connection = () => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });
      const [going, dying, overdue] = await Promise.all([600_000, 600_000, 3_000].map((timeoutMs) => Sandbox.create("base", { ...connection(), timeoutMs })));
      assert.ok(going !== undefined && dying !== undefined && overdue !== undefined);
      const command = await going.commands.run("for i in $(seq 1 1000); do echo $i > count; sleep 0.05; done", { background: true });
      await command.disconnect();
      const victims = membersOf(node.home, dying.sandboxId);
      await node.kill("SIGKILL");
      assert.notEqual(victims.length, 0);
      for (const pid of victims) killIfThere(pid);
      await node.start();
      const before = Number(await going.files.read("count"));
      await until("the count to go on", async () => (Number(await going.files.read("count")) > before ? true : undefined));
      const reasonOf = async (sandboxID: string) => {
        const response = await fetch(`${node.url}/sandboxes/${sandboxID}`, { headers: { "x-api-key": node.apiKey } });
        return response.status === 404 ? ((await response.json()) as { reason?: string }).reason : undefined;
      };
      assert.equal(await until("the reason of the killed one", () => reasonOf(dying.sandboxId)), "crashed");
      assert.equal(await until("the reason of the overdue one", () => reasonOf(overdue.sandboxId)), "timeout");
    });
  });
}

async function works(node: TestNode, sandboxID: string): Promise<void> {
  const sandbox = await Sandbox.connect(sandboxID, { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });
  assert.equal((await sandbox.commands.run("echo whole")).stdout, "whole\n");
}
