// `svc gc`: rules remove snapshots and paused sandboxes, on every node of a gateway; what runs or starts from them goes on.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { collectGarbage } from "@svc/contract/gc.ts";
import { listSnapshots } from "@svc/contract/lifecycle.ts";
import { listSandboxes } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { startFrontedNodes } from "../src/fronted-nodes.ts";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { connectionTo } from "../src/template.ts";
import { until } from "../src/until.ts";

const given = needs("root", "runsc", "envd", "base");

void test("a dry run says what would be lost and changes nothing; gc then removes that and no more, and what runs goes on", given, async () => {
  const flags = ["--retention.snapshots=count=0 unnamed label:env=dev", "--retention.paused=age=1s label:env=dev", "--retention.interval_seconds=0"];
  await using node = await startNode({ runtime: "gvisor", flags });
  const options = { ...connectionTo(node), timeoutMs: 600_000 };
  const dev = { ...options, metadata: { env: "dev" } };
  const source = await Sandbox.create("base", dev);
  await source.commands.run("echo here > file");
  const [unnamed, named] = [await source.createSnapshot(), await source.createSnapshot({ name: "release" })];
  const child = await Sandbox.create(unnamed.snapshotId, options);
  const [paused, other] = [await Sandbox.create("base", dev), await Sandbox.create("base", options)];
  for (const each of [paused, other]) await each.pause();
  const expected = [unnamed.snapshotId, paused.sandboxId].sort();
  const idsOf = ({ items }: { items: readonly { id: string }[] }) => items.map(({ id }) => id).sort();
  const dry = await until("the paused one to be old enough", async () => {
    const answer = await node.call(collectGarbage, { dryRun: true });
    return answer.items.length === expected.length ? answer : undefined;
  });
  assert.deepEqual(idsOf(dry), expected);
  assert.deepEqual(
    dry.items.map(({ rule }) => rule),
    ["count=0 unnamed label:env=dev", "age=1s label:env=dev"],
  );
  assert.equal((await node.call(listSnapshots, {})).length, 2, "nothing was changed");

  // A kill right after the answer, or before, leaves whole removals: the same call removes the rest.
  const removing = node.call(collectGarbage, { dryRun: false }).catch(() => undefined);
  await node.restart("SIGKILL");
  await removing;
  await node.call(collectGarbage, { dryRun: false });
  assert.deepEqual(
    (await node.call(listSnapshots, {})).map(({ snapshotID }) => snapshotID),
    [named.snapshotId],
  );
  const left = (await node.call(listSandboxes, { state: "running,paused" })).map(({ sandboxID }) => sandboxID).sort();
  assert.deepEqual(left, [source, child, other].map(({ sandboxId }) => sandboxId).sort());
  assert.equal((await child.commands.run("cat file")).stdout, "here\n", "a sandbox that began from a removed snapshot goes on");
  await until("the files of what was removed to go", () => (readdirSync(join(node.home, "snapshots")).length === 2 ? true : undefined));
  assert.equal((await (await Sandbox.connect(other.sandboxId, options)).commands.run("echo resumed")).stdout, "resumed\n");
});

void test("through a gateway, gc asks every node and says which one removed what", needs("root", "runc", "envd", "base"), async () => {
  await using deployment = await startFrontedNodes({ nodes: 2, node: { runtime: "bubblewrap", flags: ["--retention.interval_seconds=0"] } });
  const answer = await deployment.gateway.call(collectGarbage, { dryRun: false });
  assert.deepEqual([answer.items, answer.failed, answer.more], [[], [], false]);
  assert.equal(new Set(answer.unneeded.map(({ nodeID }) => nodeID)).size, 2);
});

void test("rules are applied at the interval, without a command", given, async () => {
  await using node = await startNode({ runtime: "gvisor", flags: ["--retention.snapshots=count=1", "--retention.interval_seconds=1"] });
  const sandbox = await Sandbox.create("base", { ...connectionTo(node), timeoutMs: 600_000 });
  await sandbox.createSnapshot();
  const newest = await sandbox.createSnapshot();
  await until("the older one to go", async () => {
    const found = await node.call(listSnapshots, {});
    return found.length === 1 && found[0]?.snapshotID === newest.snapshotId ? true : undefined;
  });
});
