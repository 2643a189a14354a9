// SIGKILL at every step of pause, resume, snapshot and fork: nothing acknowledged is lost, nothing remains, and every record explains
// itself.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { connectSandbox, createSnapshot, forkSandbox, listSnapshots, pauseSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox, getSandbox, listSandboxes } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { assertNothingBut, busySandbox, killDuring, killIfThere, type MomentsOf, reached } from "../src/crash.ts";
import { membersOf } from "../src/leftovers.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

const delaysMs = [0, 20];
const pauseStages = ["freeze", "checkpoint", "destroy"] as const;
const resumeStages = ["network", "restore", "envd"] as const;

export function crashLifeSuite(momentsOf: MomentsOf, forkStages: readonly string[]): void {
  void describe("kill -9 in the middle of a sandbox's life", needs("root", "envd", "base", "runsc"), () => {
    const debug = { runtime: "gvisor", flags: ["--log-level=debug"] } as const;
    const connectionOf = (node: TestNode) => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });

    const checkpointsOf = (node: TestNode) => readdirSync(join(node.home, "snapshots")).length;

    void test("of the node, during a pause: the sandbox keeps running or is paused, and is intact either way", async () => {
      await using node = await startNode(debug);
      const { sandboxID, check } = await busySandbox(node);
      for (const [at, stage] of pauseStages.entries()) {
        for (const delayMs of momentsOf(at, delaysMs)) {
          const when = `${stage} + ${delayMs} ms`;
          await killDuring(node, stage, delayMs, () => node.call(pauseSandbox, { sandboxID }));
          await node.start();
          const { state } = await node.call(getSandbox, { sandboxID });
          await assertNothingBut(node, state === "running" ? [sandboxID] : [], when);
          assert.equal(checkpointsOf(node), state === "running" ? 0 : 1, when);
          // The pause was recorded before the running parts were destroyed.
          if (stage === "destroy") assert.equal(state, "paused", when);
          await check(when);
        }
      }
    });

    void test("of the node, during a resume: the sandbox stays paused, and the next resume succeeds", async () => {
      await using node = await startNode(debug);
      const { sandboxID, check } = await busySandbox(node);
      for (const [at, stage] of resumeStages.entries()) {
        for (const delayMs of momentsOf(at, delaysMs)) {
          const when = `${stage} + ${delayMs} ms`;
          await node.call(pauseSandbox, { sandboxID });
          await killDuring(node, stage, delayMs, () => node.call(connectSandbox, { sandboxID }));
          await node.start();
          const { state } = await node.call(getSandbox, { sandboxID });
          await assertNothingBut(node, state === "running" ? [sandboxID] : [], when);
          await check(when);
        }
      }
    });

    void test("of the node, during a snapshot: the source continues, and there is a complete snapshot or none", async () => {
      await using node = await startNode(debug);
      const { sandboxID, check } = await busySandbox(node);
      for (const delayMs of [...momentsOf(0, [0, 60]), 20]) {
        const when = `checkpoint + ${delayMs} ms`;
        const outcome = await killDuring(node, "checkpoint", delayMs, () => node.call(createSnapshot, { sandboxID }));
        await node.start();
        const snapshots = await node.call(listSnapshots, {});
        assert.equal(checkpointsOf(node), snapshots.length, when);
        if (outcome === "answered") assert.notEqual(snapshots.length, 0, when);
        await check(when);
        await assertNothingBut(node, [sandboxID], when);
        for (const { snapshotID } of snapshots) {
          const copy = await node.call(createSandbox, { templateID: snapshotID });
          await node.call(deleteSandbox, { sandboxID: copy.sandboxID });
        }
      }
    });

    void test("of the node, during a fork: the source continues, and every existing child is complete and known", async () => {
      await using node = await startNode(debug);
      const { sandboxID, check } = await busySandbox(node);
      for (const stage of forkStages) {
        await killDuring(node, stage, 10, () => node.call(forkSandbox, { sandboxID, count: 3 }));
        await node.start();
        const alive = (await node.call(listSandboxes, {})).filter((each) => each.sandboxID !== sandboxID);
        await assertNothingBut(node, [sandboxID, ...alive.map((each) => each.sandboxID)], stage);
        assert.equal(checkpointsOf(node), 0, stage);
        for (const child of alive) {
          assert.equal(child.parentSandboxID, sandboxID);
          const sandbox = await Sandbox.connect(child.sandboxID, connectionOf(node));
          assert.equal((await sandbox.commands.run("sha256sum -c sum; hostname")).stdout, `kept: OK\n${child.sandboxID}\n`);
          await node.call(deleteSandbox, { sandboxID: child.sandboxID });
        }
        await check(stage);
      }
    });

    void test("of the sandbox itself, during a pause: it is paused and intact, or gone with a reason", async () => {
      await using node = await startNode(debug);
      for (const [at, stage] of pauseStages.entries()) {
        for (const delayMs of momentsOf(at, delaysMs)) {
          const when = `${stage} + ${delayMs} ms`;
          const { sandboxID, check } = await busySandbox(node);
          const victims = membersOf(node.home, sandboxID);
          const { outcome } = await reached(node, stage, () => node.call(pauseSandbox, { sandboxID }));
          await sleep(delayMs);
          for (const pid of victims) killIfThere(pid);
          if ((await outcome) === "answered") {
            await check(when);
            await node.call(deleteSandbox, { sandboxID });
          } else {
            const reason = await until("the end to be noticed", async () => {
              const response = await fetch(`${node.url}/sandboxes/${sandboxID}`, { headers: { "x-api-key": node.apiKey } });
              return response.status === 404 ? ((await response.json()) as { reason?: string }).reason : undefined;
            });
            assert.equal(reason, "crashed", when);
          }
          await assertNothingBut(node, [], when);
          await until(`no checkpoints after ${when}`, () => (checkpointsOf(node) === 0 ? true : undefined));
        }
      }
    });

    void test("of the restored sandbox, during a resume: the node repeats the restore, or it stays paused and the next resume succeeds", async () => {
      await using node = await startNode(debug);
      const { sandboxID, check } = await busySandbox(node);
      for (const [at, stage] of ["restore", "envd"].entries()) {
        for (const delayMs of momentsOf(at, delaysMs)) {
          const when = `${stage} + ${delayMs} ms`;
          await node.call(pauseSandbox, { sandboxID });
          const { outcome } = await reached(node, stage, () => node.call(connectSandbox, { sandboxID }));
          await sleep(delayMs);
          for (const pid of membersOf(node.home, sandboxID)) killIfThere(pid);
          if ((await outcome) === "failed") {
            assert.equal((await node.call(getSandbox, { sandboxID })).state, "paused", when);
            await assertNothingBut(node, [], when);
            await check(when);
            continue;
          }
          const broken = await check(when).then(
            () => false,
            () => true,
          );
          if (!broken) continue;
          // The sandbox was killed after its last step, when it was already running; the node notices that a moment later.
          await until(`the end of ${sandboxID} after ${when}`, () =>
            node.call(getSandbox, { sandboxID }).then(
              () => undefined,
              () => true,
            ),
          );
          return;
        }
      }
    });
  });
}
