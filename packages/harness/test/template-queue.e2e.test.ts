// Concurrent builds: what waits and says so, what is canceled, and how a newer build affects an older one.
import assert from "node:assert/strict";
import { availableParallelism } from "node:os";
import { after, describe, test } from "node:test";
import { deleteTemplate, getTemplate, listTags } from "@svc/contract/template.ts";
import { buildTemplate, cancelBuild, getBuildStatus, requestTemplate } from "@svc/contract/template-build.ts";
import { Template } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { build, ended, startBuild } from "../src/template.ts";
import { until } from "../src/until.ts";

type IDs = { templateID: string; buildID: string };
const neverReady = { fromTemplate: "base", startCmd: "sleep 4247", readyCmd: "false" };

void describe("builds of one node", needs("root", "runsc", "envd", "base"), async () => {
  const node = await startNode({ runtime: "gvisor", flags: ["--template.build_concurrency=2"] });
  after(() => node[Symbol.asyncDispose]());
  const status = (ids: IDs) => node.call(getBuildStatus, ids);
  const isPolling = (ids: IDs) =>
    until("the start command", async () => ((await status(ids)).logs.some((line) => line.startsWith("start command")) ? true : undefined));

  void test("run side by side; a waiting one says what it waits for, and continues when another is canceled", async () => {
    const [first, second] = [await startBuild(node, "stuck-one", neverReady), await startBuild(node, "stuck-two", neverReady)];
    await isPolling(first);
    await isPolling(second);
    const third = await startBuild(node, "waits", { fromTemplate: "base" });
    const fourth = await startBuild(node, "waits-longer", neverReady);
    const [next, last] = [await status(third), await status(fourth)];
    assert.deepEqual([next.status, last.status], ["waiting", "waiting"]);
    assert.match(next.logs.join("\n"), /waiting: 2 builds run, as many as template.build_concurrency allows; it is next/);
    assert.match(last.logs.join("\n"), /; 1 more is ahead of it/);
    await node.call(cancelBuild, first);
    const canceled = await status(first);
    assert.deepEqual([canceled.status, canceled.reason?.message, canceled.reason?.step], ["error", "canceled", "finalize"]);
    assert.equal((await ended(node, third)).status, "ready");
    await isPolling(fourth);
    assert.match((await status(fourth)).logs.join("\n"), /1 more is ahead of it\n.*it is next/);
    for (const each of [second, fourth]) await node.call(cancelBuild, each);
    await assert.rejects(node.call(cancelBuild, fourth), { name: "BUILD_CONFLICT", message: /has ended: its status is error/ });
    await assert.rejects(node.call(cancelBuild, { ...first, buildID: crypto.randomUUID() }), { name: "BUILD_NOT_FOUND" });
    // A client that follows the build learns of it as well.
    const followed = build(node, Template().fromTemplate("base").setStartCmd("sleep 4248", "false"), "followed");
    const rejected = assert.rejects(followed, /canceled/);
    const [shown] = await until("its build", async () => (await node.call(getTemplate, { templateID: "followed" }).catch(() => undefined))?.builds);
    const ids = { templateID: "followed", buildID: shown?.buildID ?? "" };
    await isPolling(ids);
    await node.call(cancelBuild, ids);
    await rejected;
  });

  void test("replace older ones of the same template and tags, and no others", async () => {
    const old = await startBuild(node, "again", neverReady);
    await isPolling(old);
    const newer = await startBuild(node, "again", { fromTemplate: "base" });
    const superseded = await status(old);
    assert.equal(superseded.status, "error");
    assert.equal(superseded.reason?.message, `superseded: build ${newer.buildID} of the same template and tags was started`);
    assert.equal((await ended(node, newer)).status, "ready");
    const tagged = await startBuild(node, "again:v1", { fromTemplate: "base", steps: [{ type: "RUN", args: ["sleep 3"] }] });
    const beside = await startBuild(node, "again:v2", { fromTemplate: "base" });
    assert.deepEqual([(await ended(node, tagged)).status, (await ended(node, beside)).status], ["ready", "ready"]);
  });

  void test("show the status of the one that was started last, in whichever order they were requested", async () => {
    const [first, second] = [await node.call(requestTemplate, { name: "raced" }), await node.call(requestTemplate, { name: "raced" })];
    await node.call(buildTemplate, { templateID: second.templateID, buildID: second.buildID, ...neverReady });
    await isPolling(second);
    await node.call(buildTemplate, { templateID: first.templateID, buildID: first.buildID, fromTemplate: "base" });
    assert.equal((await ended(node, first)).status, "ready");
    const { buildID, buildStatus } = await node.call(getTemplate, { templateID: "raced" });
    assert.deepEqual([buildID, buildStatus], [first.buildID, "ready"]);
  });

  void test("tell their followers that their template was deleted, and how many CPUs the host lacks", async () => {
    const ids = await startBuild(node, "goes", neverReady);
    await isPolling(ids);
    await node.call(deleteTemplate, { templateID: "goes" });
    await assert.rejects(status(ids), { name: "TEMPLATE_NOT_FOUND", message: /was deleted while it was built$/ });
    await assert.rejects(status({ ...ids, buildID: crypto.randomUUID() }), { name: "TEMPLATE_NOT_FOUND" });
    const large = await node.call(requestTemplate, { name: "large", cpuCount: 128 });
    await node.call(buildTemplate, { ...large, fromTemplate: "base" });
    const { logs } = await ended(node, large);
    const cpus = availableParallelism();
    if (cpus < 128) assert.ok(logs.includes(`the template has 128 CPUs, this host ${cpus}: its sandboxes get ${cpus} here`), logs.join("\n"));
    await assert.rejects(node.call(requestTemplate, { name: "larger", cpuCount: 1000 }), {
      name: "INVALID_REQUEST",
      message: "cpuCount: expected at most 128, got 1000",
    });
  });

  void test("that started earlier and end later leave the name with the newer build", async () => {
    const { templateID, buildID } = await node.call(requestTemplate, { name: "order", tags: ["default", "older"] });
    await node.call(buildTemplate, { templateID, buildID, fromTemplate: "base", steps: [{ type: "RUN", args: ["sleep 4"] }] });
    const newer = await startBuild(node, "order", { fromTemplate: "base" });
    assert.deepEqual([(await ended(node, newer)).status, (await ended(node, { templateID, buildID })).status], ["ready", "ready"]);
    const tags = Object.fromEntries((await node.call(listTags, { templateID })).map((each) => [each.tag, each.buildID]));
    assert.deepEqual(tags, { default: newer.buildID, older: buildID });
  });

  void test("fail with exit code and output of a failed start command, whatever their ready command waits for", async () => {
    const failed = await ended(
      node,
      await startBuild(node, "ends", { fromTemplate: "base", startCmd: "echo starting; echo no port >&2; exit 7", readyCmd: "sleep 100" }),
    );
    assert.equal(failed.status, "error");
    assert.match(failed.reason?.message ?? "", /^the start command ended with exit code 7: .*; its last words: (starting\nno port|no port\nstarting)$/);
  });
});
