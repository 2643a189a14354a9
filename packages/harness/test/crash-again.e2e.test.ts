// SIGKILL of the processes that start a sandbox: the node repeats the start, and the client notices nothing.
import assert from "node:assert/strict";
import { test } from "node:test";
import { connectSandbox, forkSandbox, pauseSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox } from "@svc/contract/sandbox.ts";
import { assertNothingBut, reached } from "../src/crash.ts";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { kill } from "../src/storm-kill.ts";

void test(
  "a create, a fork and a resume whose runsc or spawn helper is killed succeed all the same, and leave nothing over",
  needs("root", "envd", "base", "runsc"),
  async () => {
    await using node = await startNode({ runtime: "gvisor", flags: ["--log-level=debug"] });
    const source = await node.call(createSandbox, { templateID: "base" });
    const paused = await node.call(createSandbox, { templateID: "base" });
    const kept = [source.sandboxID, paused.sandboxID];
    for (const target of ["runsc", "spawn helper"] as const) {
      await node.call(pauseSandbox, { sandboxID: paused.sandboxID });
      for (const [stage, work] of [
        ["runtime", async () => [(await node.call(createSandbox, { templateID: "base" })).sandboxID]],
        [
          "restore",
          async () =>
            (await node.call(forkSandbox, { sandboxID: source.sandboxID })).map((child) =>
              "sandbox" in child ? child.sandbox.sandboxID : child.error.message,
            ),
        ],
        ["restore", async () => [(await node.call(connectSandbox, { sandboxID: paused.sandboxID })).sandboxID]],
      ] as const) {
        for (let tries = 1, isMet = false; !isMet; tries++) {
          let made: string[] = [];
          const { outcome } = await reached(node, stage, async () => {
            made = await work();
          });
          // The process runs only briefly and may end before this test sees it.
          isMet = (await kill(node, target, () => 0)) !== undefined;
          assert.ok(isMet || tries < 5, `${target} at ${stage} was never met`);
          assert.equal(await outcome, "answered", `${target} at ${stage}: ${node.log().slice(-3000)}`);
          await assertNothingBut(node, [source.sandboxID, ...made], `${target} at ${stage}`);
          for (const sandboxID of made) if (!kept.includes(sandboxID)) await node.call(deleteSandbox, { sandboxID });
          if (!isMet && made.includes(paused.sandboxID)) await node.call(pauseSandbox, { sandboxID: paused.sandboxID });
        }
      }
    }
    assert.match(node.log(), /a sandbox's start failed; starting it again/);
  },
);
