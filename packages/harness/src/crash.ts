// Kills a node at a stage of its work, which its debug log names, and checks what remains on the host and in a sandbox.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { Sandbox } from "e2b";
import { leftovers } from "./leftovers.ts";
import type { TestNode } from "./node.ts";
import { until } from "./until.ts";

/** Chooses the moments of the n-th step: right at its beginning, or some time into it. */
export type MomentsOf = (at: number, momentsMs: readonly number[]) => readonly number[];
export const everyMoment: MomentsOf = (_, momentsMs) => momentsMs;
/** One moment of each step, in rotation. */
export const oneMoment =
  (first: number): MomentsOf =>
  (at, momentsMs) =>
    momentsMs.filter((_, index) => index === (first + at) % momentsMs.length);

/** Kills the node with SIGKILL `delayMs` after `stage` of `work` began; returns whether `work` was answered before. */
export async function killDuring(node: TestNode, stage: string, delayMs: number, work: () => Promise<unknown>): Promise<"answered" | "failed"> {
  const { outcome } = await reached(node, stage, work);
  if (delayMs > 0) await sleep(delayMs);
  await node.kill("SIGKILL");
  return outcome;
}

/** Runs `work` and returns when its `stage` has begun. */
export async function reached(node: TestNode, stage: string, work: () => Promise<unknown>): Promise<{ outcome: Promise<"answered" | "failed"> }> {
  const seen = node.log().length;
  const outcome = work().then(
    () => "answered" as const,
    () => "failed" as const,
  );
  await until(`stage ${stage}`, async () => (node.log().slice(seen).includes(`"stage":"${stage}"`) ? true : undefined), 1);
  return { outcome };
}

/** Asserts that everything on this host belongs to a listed sandbox; paused ones have nothing here. */
export async function assertNothingBut(node: TestNode, alive: readonly string[], when: string): Promise<void> {
  const look = () => {
    const left = leftovers(node.home);
    const foreign = [...left.cgroups, ...left.mounts, ...left.processes].filter((what) => !alive.some((sandboxID) => what.includes(sandboxID)));
    return { directories: [...left.directories].sort(), netns: left.netns.length, links: left.links.length, foreign };
  };
  const expected = { directories: [...alive].sort(), netns: alive.length, links: alive.length, foreign: [] };
  // A paused sandbox's network is removed after its pause has been acknowledged.
  await until("the host to be clean", () => (JSON.stringify(look()) === JSON.stringify(expected) ? true : undefined)).catch(() =>
    assert.deepEqual(look(), expected, `parts after ${when}`),
  );
}

/** A process may already have ended because another one did. */
export function killIfThere(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/** Creates a sandbox whose files change with each check, with a process that must continue across pauses. */
export async function busySandbox(node: TestNode): Promise<{ sandboxID: string; check: (when: string) => Promise<void> }> {
  const connection = () => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });
  const sandbox = await Sandbox.create("base", { ...connection(), timeoutMs: 3_000_000 });
  const sandboxID = sandbox.sandboxId;
  await sandbox.commands.run(
    'head -c 8M /dev/urandom > kept; sha256sum kept > sum; python3 -c "import time; time.sleep(1e6)" > /dev/null 2>&1 & echo $! > pid',
  );
  return {
    sandboxID,
    async check(when) {
      const again = await Sandbox.connect(sandboxID, connection());
      const { stdout } = await again.commands.run("sha256sum -c sum; kill -0 $(cat pid) && hostname");
      assert.equal(stdout, `kept: OK\n${sandboxID}\n`, when);
      // The next pause must not mix changed data with that of earlier checkpoints.
      await again.commands.run("head -c 100k /dev/urandom | dd of=kept bs=1k seek=$((RANDOM % 8000)) conv=notrunc 2>/dev/null; sha256sum kept > sum");
    },
  };
}
