// Another version of runsc: sandboxes that ran or were paused under the previous version continue with it.
import assert from "node:assert/strict";
import { appendFileSync, chmodSync, copyFileSync, mkdtempSync, readdirSync, readlinkSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { test } from "node:test";
import { deleteSandbox } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { membersOf } from "../src/leftovers.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

/** A program with the same behaviour but other bytes, since a home distinguishes versions only by bytes. */
function otherVersion(folder: string, name: string): string {
  const path = join(folder, name);
  copyFileSync(process.env["SVC_RUNSC"] ?? "", path);
  appendFileSync(path, name);
  chmodSync(path, 0o755);
  return path;
}

const kept = (node: TestNode) => readdirSync(join(node.home, "bin")).filter((name) => name.startsWith("runsc-"));

/** Returns the stored program that a sandbox's processes run. */
function programOf(node: TestNode, sandboxID: string): string {
  const programs = membersOf(node.home, sandboxID).flatMap((pid) => {
    try {
      return [basename(readlinkSync(`/proc/${pid}/exe`))];
    } catch {
      return [];
    }
  });
  return programs.find((name) => name.startsWith("runsc-")) ?? `none of ${programs.join(", ")}`;
}

void test(
  "after an upgrade of runsc a running and a paused sandbox go on in the runsc that they ran, new ones in the new; the old one goes with the last",
  needs("root", "envd", "base", "runsc"),
  async () => {
    const folder = mkdtempSync(join(tmpdir(), "svc-upgrade-test-"));
    try {
      await using node = await startNode({ runtime: "gvisor", env: { SVC_RUNSC: otherVersion(folder, "before") } });
      const connection = () => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey, timeoutMs: 600_000 });
      const [running, paused] = await Promise.all([Sandbox.create("base", connection()), Sandbox.create("base", connection())]);
      for (const each of [running, paused]) await each.commands.run("echo kept > kept; sleep 100000 > /dev/null 2>&1 & echo $! > pid");
      const [before = ""] = kept(node);
      await paused.pause();
      await node.restart("SIGTERM", { env: { SVC_RUNSC: otherVersion(folder, "after") } });

      const fresh = await Sandbox.create("base", connection());
      const after = kept(node).find((name) => name !== before) ?? "";
      assert.equal(programOf(node, fresh.sandboxId), after);
      const check = async (sandboxID: string) => {
        const sandbox = await Sandbox.connect(sandboxID, connection());
        assert.equal((await sandbox.commands.run("cat kept; kill -0 $(cat pid) && echo alive")).stdout, "kept\nalive\n");
        assert.equal(programOf(node, sandboxID), before);
      };
      await check(paused.sandboxId);
      // An adopted sandbox is paused and resumed by the program that it already runs.
      await running.pause();
      await check(running.sandboxId);

      for (const each of [running, paused]) await node.call(deleteSandbox, { sandboxID: each.sandboxId });
      await node.restart("SIGTERM", { env: { SVC_RUNSC: join(folder, "after") } });
      await until("the old one to go", () => (kept(node).join() === after ? true : undefined));
      assert.equal((await fresh.commands.run("echo runs")).stdout, "runs\n");
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  },
);
