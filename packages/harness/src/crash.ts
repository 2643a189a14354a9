// Kills a node at a stage of its work, which its debug log names, and looks at what is left: on the host, and in a sandbox.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { Sandbox } from "e2b";
import { leftovers } from "./leftovers.ts";
import type { TestNode } from "./node.ts";
import { until } from "./until.ts";

/** Which of the moments of the n-th step are tried: right at its beginning, and somewhat into it. */
export type MomentsOf = (at: number, momentsMs: readonly number[]) => readonly number[];
export const everyMoment: MomentsOf = (_, momentsMs) => momentsMs;
/** One of each step, in turn. */
export const oneMoment =
  (first: number): MomentsOf =>
  (at, momentsMs) =>
    momentsMs.filter((_, index) => index === (first + at) % momentsMs.length);

/** kill -9 of the node `delayMs` after `stage` of `work` began. Whether `work` was answered before. */
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

/** Every part on this host belongs to a listed sandbox; of paused ones nothing is there. */
export async function assertNothingBut(node: TestNode, alive: readonly string[], when: string): Promise<void> {
  const look = () => {
    const left = leftovers(node.home);
    const foreign = [...left.cgroups, ...left.mounts, ...left.processes].filter((what) => !alive.some((sandboxID) => what.includes(sandboxID)));
    return { directories: [...left.directories].sort(), netns: left.netns.length, links: left.links.length, foreign };
  };
  const expected = { directories: [...alive].sort(), netns: alive.length, links: alive.length, foreign: [] };
  // A paused sandbox's network goes after its pause was acknowledged.
  await until("the host to be clean", () => (JSON.stringify(look()) === JSON.stringify(expected) ? true : undefined)).catch(() =>
    assert.deepEqual(look(), expected, `parts after ${when}`),
  );
}

/** The first to go may take the others along. */
export function killIfThere(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/** A sandbox with files that change with each check, and a process that must go on where it was. */
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
      // What was changed since the last pause must not be mixed up with what was there before.
      await again.commands.run("head -c 100k /dev/urandom | dd of=kept bs=1k seek=$((RANDOM % 8000)) conv=notrunc 2>/dev/null; sha256sum kept > sum");
    },
  };
}
