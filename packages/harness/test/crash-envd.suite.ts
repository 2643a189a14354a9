// SIGKILL of envd, the sandbox's first process, at every step: acknowledged sandboxes are intact, and lost ones give a reason.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { connectSandbox, createSnapshot, forkSandbox, listSnapshots, pauseSandbox } from "@svc/contract/lifecycle.ts";
import { deleteSandbox, listSandboxes } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { assertNothingBut, killIfThere, type MomentsOf, reached } from "../src/crash.ts";
import { leftovers, membersOf } from "../src/leftovers.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { ended, startBuild } from "../src/template.ts";
import { until } from "../src/until.ts";

const RUNSC_TIMEOUT_MS = 60_000;
/** The error of a restore from a checkpoint of memory that contains envd's pending SIGKILL. */
const diesAtOnce = /died before envd answered|ended at once|runsc restore ended/;
const delaysMs = [0, 15];

/** On gVisor envd is a process of the kernel inside, so runsc delivers the signal; on other runtimes it is a host process. */
function killEnvd(node: TestNode, runtime: "gvisor" | "runc", sandboxID: string): void {
  if (runtime === "gvisor") {
    try {
      const argv = [`--root=${join(node.home, "run/gvisor/state")}`, "kill", sandboxID, "KILL"];
      execFileSync(process.env["SVC_RUNSC"] ?? "runsc", argv, { stdio: "ignore", timeout: RUNSC_TIMEOUT_MS });
    } catch {
      // The process does not exist yet, or no longer.
    }
    return;
  }
  for (const pid of membersOf(node.home, sandboxID)) if (isEnvd(pid)) killIfThere(pid);
}

function isEnvd(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "latin1").split("\0")[0]?.endsWith("envd") === true;
  } catch {
    return false;
  }
}

/** A resumed sandbox's checkpoint is removed after the answer. */
const noCheckpoints = (node: TestNode, when: string) =>
  until(`no checkpoints after ${when}`, () => (readdirSync(join(node.home, "snapshots")).length === 0 ? true : undefined));

export function crashEnvdSuite(momentsOf: MomentsOf): void {
  for (const [runtime, memory] of [
    ["gvisor", true],
    ["runc", false],
  ] as const) {
    void describe(`kill -9 of envd on ${runtime}`, needs("root", "envd", "base", runtime === "gvisor" ? "runsc" : "runc"), () => {
      const debug = { runtime, flags: ["--log-level=debug"] };
      const connectionOf = (node: TestNode) => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });

      async function made(node: TestNode): Promise<string> {
        const sandbox = await Sandbox.create("base", { ...connectionOf(node), timeoutMs: 3_000_000 });
        await sandbox.commands.run("echo kept > kept");
        return sandbox.sandboxId;
      }

      /**
       * Returns the state: running or paused, and intact, or gone with the reason "crashed". A kill of a frozen sandbox stays pending in
       * its checkpoint: every resume then fails with that reason, and the sandbox stays paused.
       */
      async function whole(node: TestNode, sandboxID: string, when: string): Promise<"alive" | "crashed" | "killed in its checkpoint"> {
        const response = await fetch(`${node.url}/sandboxes/${sandboxID}`, { headers: { "x-api-key": node.apiKey } });
        if (response.status === 404) {
          assert.equal(((await response.json()) as { reason?: string }).reason, "crashed", when);
          return "crashed";
        }
        const { state } = (await response.json()) as { state: string };
        try {
          const sandbox = await Sandbox.connect(sandboxID, connectionOf(node));
          assert.equal((await sandbox.commands.run("cat kept")).stdout, "kept\n", when);
          return "alive";
        } catch (error) {
          if (state === "paused" && diesAtOnce.test((error as Error).message)) return "killed in its checkpoint";
          throw error;
        }
      }

      /** The node may notice a death a moment later; until then the sandbox does not answer. */
      const settled = (node: TestNode, sandboxID: string, when: string) =>
        until(`${sandboxID} to be whole or gone, ${when}`, () =>
          whole(node, sandboxID, when).catch((error: Error) => (error instanceof assert.AssertionError ? Promise.reject(error) : undefined)),
        );

      /** Kills the envd of the victims once `stage` of `work` has begun. */
      async function cut(
        node: TestNode,
        stage: string,
        delayMs: number,
        work: () => Promise<unknown>,
        victims: () => readonly string[],
      ): Promise<"answered" | "failed"> {
        const { outcome } = await reached(node, stage, work);
        await sleep(delayMs);
        for (const victim of victims()) killEnvd(node, runtime, victim);
        return outcome;
      }

      void test("at a pause and at a resume, an acknowledged pause is kept, and the sandbox is intact or reports that it crashed", async () => {
        await using node = await startNode(debug);
        let acknowledged = 0;
        for (const [at, stage] of ["freeze", "checkpoint", "destroy", "network", "restore", "envd"].entries()) {
          const isResume = ["network", "restore", "envd"].includes(stage);
          for (const delayMs of momentsOf(at, delaysMs)) {
            const when = `${stage} + ${delayMs} ms`;
            const sandboxID = await made(node);
            if (isResume) await node.call(pauseSandbox, { sandboxID, memory });
            const work = () => (isResume ? node.call(connectSandbox, { sandboxID }) : node.call(pauseSandbox, { sandboxID, memory }));
            const outcome = await cut(node, stage, delayMs, work, () => [sandboxID]);
            const state = await settled(node, sandboxID, when);
            if (!isResume && outcome === "answered") {
              assert.notEqual(state, "crashed", `an acknowledged pause is kept: ${when}`);
              if (stage === "destroy" || !memory) assert.equal(state, "alive", when);
              acknowledged += 1;
            }
            if (isResume && outcome === "failed") assert.equal(state, "alive", `it stays paused: ${when}`);
            if (state !== "crashed") await node.call(deleteSandbox, { sandboxID });
            await assertNothingBut(node, [], when);
            await noCheckpoints(node, when);
          }
        }
        assert.notEqual(acknowledged, 0);
      });

      void test("at a snapshot, there is a complete one or none", async () => {
        await using node = await startNode(debug);
        for (const delayMs of [...momentsOf(0, [0, 40]), 15]) {
          const when = `checkpoint + ${delayMs} ms`;
          const sandboxID = await made(node);
          const outcome = await cut(
            node,
            "checkpoint",
            delayMs,
            () => node.call(createSnapshot, { sandboxID, memory }),
            () => [sandboxID],
          );
          const snapshots = await node.call(listSnapshots, { sandboxID });
          assert.equal(snapshots.length, outcome === "answered" ? 1 : 0, when);
          for (const { snapshotID } of snapshots) {
            const copy = await Sandbox.create(snapshotID, connectionOf(node));
            assert.equal((await copy.commands.run("cat kept")).stdout, "kept\n", when);
            await copy.kill();
          }
          if ((await settled(node, sandboxID, when)) === "alive") await node.call(deleteSandbox, { sandboxID });
          await assertNothingBut(node, [], when);
        }
      });

      // Only gVisor supports forks with memory, and builds.
      if (!memory) return;

      void test("at a fork, of the source or of a child: every child is intact or an error with a reason, and the others leave nothing behind", async () => {
        await using node = await startNode(debug);
        for (const [stage, isSource] of [
          ["checkpoint", true],
          ["restore", false],
          ["envd", false],
          ["identity", false],
        ] as const) {
          const sandboxID = await made(node);
          const others = () => leftovers(node.home).directories.filter((directory) => directory !== sandboxID);
          const fork = () => node.call(forkSandbox, { sandboxID, count: 3 }).then((children) => void told.push(...children));
          const told: Awaited<ReturnType<typeof node.call<typeof forkSandbox>>>[number][] = [];
          const outcome = await cut(node, stage, 10, fork, () => (isSource ? [sandboxID] : others()));
          if (outcome === "failed") assert.equal(isSource, true, "a child's end is its own");
          for (const each of told) if ("error" in each && each.error != null) assert.match(each.error.message, /./);
          const isThere = async () => (await node.call(listSandboxes, {})).map((each) => each.sandboxID);
          for (const child of await isThere()) {
            if ((await settled(node, child, stage)) === "alive") await node.call(deleteSandbox, { sandboxID: child });
          }
          await assertNothingBut(node, [], stage);
          await noCheckpoints(node, stage);
        }
      });

      void test("at a step of a build, the build ends with an error that says so, or is ready; the next one is ready", async () => {
        await using node = await startNode(debug);
        const input = { fromTemplate: "base", steps: [{ type: "RUN", args: ["date +%N > /tmp/one; sleep 0.3"] }] };
        for (const stage of ["build 1", "build layer"]) {
          let ids: Awaited<ReturnType<typeof startBuild>> | undefined;
          const start = async () => {
            ids = await startBuild(node, `killed-${stage.replace(" ", "-")}`, { ...input, force: true });
          };
          await cut(node, stage, 10, start, () => leftovers(node.home).directories);
          assert.ok(ids !== undefined);
          const { status, reason } = await ended(node, ids);
          if (status === "error") assert.match(reason?.message ?? "", /sandbox|crash|died|ended/i);
          await assertNothingBut(node, [], stage);
        }
        assert.equal((await ended(node, await startBuild(node, "next", input))).status, "ready");
      });
    });
  }
}
