// Either node is killed at each step of a fetch: the fetching node has the whole snapshot or nothing, and can start it afterwards.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { listSnapshots } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox } from "@svc/contract/sandbox.ts";
import { deleteTemplate } from "@svc/contract/template.ts";
import { reached } from "../src/crash.ts";
import { checkpoints, coming, type FedNodes, startFedNodes } from "../src/fed-nodes.ts";
import { needs } from "../src/needs.ts";
import type { TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

const steps = ["fetch-manifest", "fetch-chunks", "fetch-record", "fetched"] as const;

void describe("a fetch whose node is killed", needs("root", "runsc", "envd", "base", "etcd", "xxh128sum"), () => {
  let fed: FedNodes;
  let holder: TestNode;
  let other: TestNode;
  let snapshotID: string;
  before(async () => {
    fed = await startFedNodes([{ flags: ["--log-level=debug"] }, { flags: ["--log-level=debug"] }]);
    [holder, other] = fed.nodes;
    snapshotID = await fed.snapshotOn(holder, "head -c 9000000 /dev/urandom > /home/user/noise");
  });
  after(() => fed?.[Symbol.asyncDispose]());

  const fetching = () => other.call(createSandbox, { templateID: snapshotID, timeout: 600 });
  /** Calls the node directly, so that no other node is involved. */
  async function startsAndGoes(): Promise<void> {
    const { sandboxID } = await until("both nodes see each other", () => fetching().catch(() => undefined));
    await other.call(deleteSandbox, { sandboxID });
    await other.call(deleteTemplate, { templateID: snapshotID });
    assert.deepEqual(await other.call(listSnapshots, {}), []);
    await until("its checkpoint is gone", () => (checkpoints(other).length === 0 ? true : undefined));
  }
  /** Checks that there are as many checkpoints as snapshots, so none belongs to half a snapshot. */
  async function isWholeOrNot(): Promise<void> {
    assert.deepEqual(coming(other), []);
    assert.equal(checkpoints(other).length, (await other.call(listSnapshots, {})).length);
  }

  for (const step of steps) {
    void test(`at ${step} the fetching node`, async () => {
      const { outcome } = await reached(other, step, fetching);
      await other.kill("SIGKILL");
      await outcome;
      await other.start();
      await isWholeOrNot();
      await startsAndGoes();
    });
  }

  for (const step of steps.slice(0, 2)) {
    void test(`at ${step} the node that has it`, async () => {
      const { outcome } = await reached(other, step, fetching);
      await holder.kill("SIGKILL");
      // The last byte may already have been in flight.
      if ((await outcome) === "failed") await isWholeOrNot();
      await holder.start();
      await startsAndGoes();
    });
  }
});
