// A power cut at a random moment: with durability "disk", everything acknowledged before it exists afterwards.
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Failure } from "@svc/contract/failures.ts";
import { createSnapshot, listSnapshots, pauseSandbox, resumeSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { assignTags, deleteTemplate, listTags } from "@svc/contract/template.ts";
import { Sandbox } from "e2b";
import { boundedDiskNeeds, openBoundedDisk } from "../src/bounded-disk.ts";
import { freeze } from "../src/freeze.ts";
import { needs } from "../src/needs.ts";
import { destroyAll, startNode, type TestNode } from "../src/node.ts";
import { connectionTo, ended, startBuild } from "../src/template.ts";
import { until } from "../src/until.ts";

const DISK_MB = 512;
/** The minimum per round; the cut comes at a random moment afterwards. */
const MIN_ACKNOWLEDGED = 8;
const MAX_FURTHER_MS = 1_500;
const BULK_BYTES = 2_000_000;

type Acknowledged = { paused: string[]; snapshots: string[]; deletedSandboxes: string[]; deletedSnapshots: string[]; tags: string[] };

async function say(node: TestNode, sandboxID: string, command: string): Promise<string> {
  const sandbox = await Sandbox.connect(sandboxID, connectionTo(node));
  return (await sandbox.commands.run(command)).stdout;
}

const fill = `echo kept > kept; head -c ${BULK_BYTES} /dev/urandom > bulk; sha1sum bulk > sum`;
const check = "sha1sum -c --status sum; cat kept";
const started = async (node: TestNode) => (await node.call(createSandbox, { templateID: "base", timeout: 3600 })).sandboxID;

/** Each worker continues until the node stops answering. */
function workers(node: TestNode, source: string, acknowledged: Acknowledged): Promise<unknown>[] {
  const { paused, snapshots, deletedSandboxes, deletedSnapshots, tags } = acknowledged;
  const forever = async (work: (at: number) => Promise<void>) => {
    for (let at = 0; ; at++) await work(at);
  };
  return [
    forever(async (at) => {
      const sandboxID = await started(node);
      await say(node, sandboxID, fill);
      await node.call(pauseSandbox, { sandboxID });
      if (at % 3 < 2) return void paused.push(sandboxID);
      await node.call(deleteSandbox, { sandboxID });
      deletedSandboxes.push(sandboxID);
    }),
    forever(async (at) => {
      const { snapshotID } = await node.call(createSnapshot, { sandboxID: source });
      if (at % 3 < 2) return void snapshots.push(snapshotID);
      await node.call(deleteTemplate, { templateID: snapshotID });
      deletedSnapshots.push(snapshotID);
    }),
    forever(async (at) => {
      await node.call(assignTags, { target: "built", tags: [`t${at}`] });
      tags.push(`t${at}`);
      await sleep(50);
    }),
  ];
}

export function powerCutSuite(rounds: number): void {
  void test(
    'with durability "disk" a power cut at any moment takes nothing that was acknowledged: pauses, snapshots, templates, tags, deletes',
    needs("runsc", "envd", "base", ...boundedDiskNeeds),
    async (t) => {
      using disk = openBoundedDisk(DISK_MB);
      await using node = await startNode({ home: disk.path, runtime: "gvisor", flags: ["--node.durability=disk"] });
      const steps = [{ type: "RUN", args: ["mkdir many; for i in $(seq 200); do echo $i > many/$i; done; echo built > built"] }];
      for (let round = 0; round < rounds; round++) {
        const source = await started(node);
        await say(node, source, fill);
        const acknowledged: Acknowledged = { paused: [], snapshots: [], deletedSandboxes: [], deletedSnapshots: [], tags: [] };
        const built = await ended(
          node,
          await startBuild(node, "built", { fromTemplate: "base", steps, force: true, startCmd: "sleep 1000000", readyCmd: "true" }),
        );
        assert.equal(built.reason?.message, undefined);
        const work = workers(node, source, acknowledged).map((each) => each.catch(() => undefined));
        const { paused, snapshots, deletedSandboxes, deletedSnapshots } = acknowledged;
        await until("some of each to be acknowledged", () =>
          paused.length + snapshots.length >= MIN_ACKNOWLEDGED && deletedSandboxes.length > 0 && deletedSnapshots.length > 0 ? true : undefined,
        );
        await sleep(randomInt(MAX_FURTHER_MS));
        await freeze(node.pid);
        const before = structuredClone(acknowledged);
        const cut = disk.powerCut();
        await node.kill("SIGKILL");
        await Promise.all(work);
        await destroyAll(disk.path);
        cut.use();
        await node.start();
        t.diagnostic(`${JSON.stringify(Object.fromEntries(Object.entries(before).map(([what, all]) => [what, all.length])))}`);
        for (const sandboxID of before.paused) {
          await node.call(resumeSandbox, { sandboxID, timeout: 600 });
          assert.equal(await say(node, sandboxID, check), "kept\n");
          await node.call(deleteSandbox, { sandboxID });
        }
        const listed = (await node.call(listSnapshots, { limit: 100 })).map(({ snapshotID }) => snapshotID);
        for (const snapshotID of before.snapshots) {
          assert.ok(listed.includes(snapshotID), snapshotID);
          const { sandboxID } = await node.call(createSandbox, { templateID: snapshotID });
          assert.equal(await say(node, sandboxID, check), "kept\n");
          await node.call(deleteSandbox, { sandboxID });
        }
        for (const sandboxID of before.deletedSandboxes)
          await assert.rejects(node.call(getSandbox, { sandboxID }), (error: Failure) => error.name === "SANDBOX_NOT_FOUND");
        for (const snapshotID of before.deletedSnapshots) assert.ok(!listed.includes(snapshotID));
        const tagged = (await node.call(listTags, { templateID: "built" })).map(({ tag }) => tag);
        assert.deepEqual(
          before.tags.filter((tag) => !tagged.includes(tag)),
          [],
        );
        const { sandboxID } = await node.call(createSandbox, { templateID: "built" });
        assert.equal(await say(node, sandboxID, "cat built; ls many | wc -l; pgrep -c sleep"), "built\n200\n1\n");
        await node.call(deleteSandbox, { sandboxID });
        for (const templateID of listed) await node.call(deleteTemplate, { templateID });
      }
    },
  );
}
