// A node on a full disk: changes answered 2xx exist, those answered 507 do not, it still deletes and starts, and works again with space.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { Failure } from "@svc/contract/failures.ts";
import { createSnapshot, listSnapshots, pauseSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { assignTags, deleteTemplate, listTags } from "@svc/contract/template.ts";
import { Sandbox } from "e2b";
import { type BoundedDisk, boundedDiskNeeds, openBoundedDisk } from "../src/bounded-disk.ts";
import { openStream } from "../src/event-stream.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { connectionTo, ended, startBuild } from "../src/template.ts";
import { until } from "../src/until.ts";
import { changes, ids, keptFiles, remove, running, withFile } from "./full-disk-changes.ts";

/** Large enough for runsc, the reserve, and some checkpoints. */
const DISK_MB = 448;
const KIB = 1024;

/** A single row may fit into blocks that the databases already have. */
const fitsInTheLog = ["timeout", "network", "template"];

type Answer = { readonly ok: true; readonly value: unknown } | { readonly ok: false };

/** Returns the answer; a full disk may cause only success or DISK_FULL. */
async function answered<T>(name: string, act: () => Promise<T>): Promise<{ ok: true; value: T } | { ok: false }> {
  try {
    return { ok: true, value: await act() };
  } catch (error) {
    assert.ok(error instanceof Failure && error.name === "DISK_FULL", `${name}: ${(error as Error).name}: ${(error as Error).message}`);
    assert.match(error.message, /disk|no space left/i, name);
    return { ok: false };
  }
}

async function startOn(disk: BoundedDisk): Promise<TestNode> {
  const node = await startNode({ home: disk.path, runtime: "gvisor" });
  // The first sandbox makes this home copy runsc, which must not count.
  await remove(node, (await running(node)).sandboxID);
  return node;
}

/** `left` lists KiB of free space; each lets a request get a little further before one of its writes fails. */
export function fullDiskSuite(left: readonly number[]): void {
  void describe("a node on a full disk", needs("runsc", "envd", "base", ...boundedDiskNeeds), () => {
    for (const leftKiB of left) {
      const leftBytes = leftKiB * KIB;
      void test(`with ${leftKiB} KiB left each change is acknowledged, or refused with 507 and absent, also after kill -9`, async (t) => {
        using disk = openBoundedDisk(DISK_MB);
        await using node = await startOn(disk);
        const contexts: unknown[] = [];
        for (const { prepare } of changes) contexts.push(await prepare(node));
        const outcomes: { readonly where: string; readonly answer: Answer; isThere(): Promise<boolean> }[] = [];
        for (const [at, { name, act, isThere }] of changes.entries()) {
          disk.fill(leftBytes);
          const answer = await answered(name, () => act(node, contexts[at]));
          outcomes.push({ where: name, answer, isThere: () => isThere(node, contexts[at], answer.ok ? answer.value : undefined) });
        }
        t.diagnostic(`refused: ${outcomes.flatMap(({ where, answer }) => (answer.ok ? [] : [where])).join(", ") || "none"}`);
        if (leftBytes === 0) for (const { where, answer } of outcomes) assert.ok(!answer.ok || fitsInTheLog.includes(where), `${where} was not refused`);
        for (const { where, answer, isThere } of outcomes) assert.equal(await isThere(), answer.ok, where);
        disk.fill();
        await node.restart("SIGKILL");
        for (const { where, answer, isThere } of outcomes) assert.equal(await isThere(), answer.ok, `${where}, after a start on the full disk`);
        disk.free();
        await roomIsSeen(node);
        for (const [at, { undo }] of changes.entries()) await undo(node, contexts[at]);
        assert.deepEqual(await ids(node), []);
      });
    }

    void test("it lists, runs, restarts and deletes; deleted sandboxes stay deleted, and space becomes free again", async () => {
      using disk = openBoundedDisk(DISK_MB);
      await using node = await startOn(disk);
      const kept = await withFile(node);
      const gone = await Promise.all([running(node), running(node), running(node)]);
      const paused = await withFile(node);
      await node.call(pauseSandbox, { sandboxID: paused });
      const { snapshotID } = await node.call(createSnapshot, { sandboxID: kept });
      const freeBefore = disk.freeBytes();
      disk.fill();
      await remove(node, gone[0].sandboxID);
      disk.fill();
      await node.restart("SIGKILL");
      // The file is overwritten in place, in the blocks of the killed node's file.
      assert.equal((JSON.parse(readFileSync(join(disk.path, "node.json"), "utf8")) as { pid: number }).pid, node.pid);
      await remove(node, gone[1].sandboxID);
      disk.fill();
      // A clean stop frees blocks that the filler takes at once.
      await node.kill("SIGTERM");
      disk.fill();
      await node.start();
      await remove(node, gone[2].sandboxID);
      disk.fill();
      await keptFiles(node, kept);
      const inside = await Sandbox.connect(kept, connectionTo(node));
      const { stdout } = await inside.commands.run("head -c 3000000 /dev/urandom > /home/user/more || echo refused");
      assert.equal(stdout, "refused\n");
      await node.call(deleteTemplate, { templateID: snapshotID });
      await remove(node, paused);
      assert.deepEqual(await ids(node), [kept]);
      await node.restart("SIGKILL");
      assert.deepEqual(await ids(node), [kept]);
      assert.deepEqual(await node.call(listSnapshots, {}), []);
      disk.free();
      await roomIsSeen(node);
      assert.ok(disk.freeBytes() > freeBefore);
      await keptFiles(node, kept);
      await remove(node, kept);
    });

    void test("a pause at the timeout, or when idle, without space is reported, waits for its minute and leaves the sandbox unchanged", async () => {
      using disk = openBoundedDisk(DISK_MB);
      await using node = await startOn(disk);
      const sandboxID = await withFile(node);
      const waking = { templateID: "base", timeout: 600, autoPause: true, autoResume: { enabled: true }, idlePauseSeconds: 2 };
      const { sandboxID: idle } = await node.call(createSandbox, waking);
      const { sandboxID: brief } = await node.call(createSandbox, { templateID: "base", timeout: 3, autoPause: true });
      disk.fill();
      const failures = () => ["could not be paused at its timeout", "an idle sandbox could not be paused"].map((says) => node.log().split(says).length - 1);
      await until("both pauses to fail", async () => (failures().every((count) => count > 0) ? true : undefined));
      // The node checks many times during this wait.
      await new Promise((resolve) => setTimeout(resolve, 8_000));
      assert.deepEqual(failures(), [1, 1]);
      assert.deepEqual((await ids(node)).sort(), [brief, idle, sandboxID].sort());
      disk.free();
      await using stream = await openStream(`${node.url}/events?after=0&types=sandbox.pause_failed&sandboxID=${brief}`, { "x-api-key": node.apiKey });
      const [told] = await stream.take(1);
      assert.match(told?.data ?? "", /"cause":"timeout".*(disk|no space left)/i);
      await keptFiles(node, sandboxID);
    });

    void test("builds end with the reason, and the node continues; a template's tags are as they were acknowledged", async () => {
      using disk = openBoundedDisk(DISK_MB);
      await using node = await startOn(disk);
      const steps = [{ type: "RUN", args: ["head -c 6000000 /dev/urandom > bulk; for i in $(seq 400); do echo line $i of the log; done"] }];
      const first = await ended(node, await startBuild(node, "built", { fromTemplate: "base", steps }));
      assert.equal(first.status, "ready", first.reason?.message);
      for (const leftBytes of left.map((leftKiB) => leftKiB * KIB)) {
        disk.fill(leftBytes);
        const started = await answered("build", () => startBuild(node, "built", { fromTemplate: "base", steps, force: true }));
        if (started.ok) {
          const { status, reason } = await ended(node, started.value);
          assert.ok(status === "ready" || /disk|no space left/i.test(reason?.message ?? ""), `${leftBytes}: ${status}, ${reason?.message}`);
        }
        const tag = `t${leftBytes}`;
        const tagged = await answered("tag", () => node.call(assignTags, { target: "built", tags: [tag] }));
        disk.fill();
        await node.restart("SIGKILL");
        const tags = (await node.call(listTags, { templateID: "built" })).map((each) => each.tag);
        assert.equal(tags.includes(tag), tagged.ok);
        disk.free();
        await roomIsSeen(node);
      }
      const { sandboxID } = await node.call(createSandbox, { templateID: "built" });
      await remove(node, sandboxID);
      const last = await ended(node, await startBuild(node, "built", { fromTemplate: "base", steps, force: true }));
      assert.equal(last.status, "ready", last.reason?.message);
    });
  });
}

/** The node checks for space once a second. */
async function roomIsSeen(node: TestNode): Promise<void> {
  await until("the node to take something new", async () => {
    const made = await running(node).catch((error: Failure) => {
      if (error.name !== "DISK_FULL") throw error;
      return undefined;
    });
    if (made === undefined) return undefined;
    await remove(node, made.sandboxID);
    return true;
  });
}
