// Builds with durable snapshots: a ready template is in object storage, whatever happens to the node that built it.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { assignTags, listTemplates } from "@svc/contract/template.ts";
import { getBuildStatus } from "@svc/contract/template-build.ts";
import { Template } from "e2b";
import { startFrontedNodes } from "../src/fronted-nodes.ts";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { startObjectRelay } from "../src/object-relay.ts";
import { startObjectServer } from "../src/object-server.ts";
import { build, ended, startBuild } from "../src/template.ts";
import { until } from "../src/until.ts";

const host = needs("root", "envd", "base", "bwrap", "xxh128sum");
const RUNTIME = "bubblewrap";
const noise = (megabytes: number) => ({ fromTemplate: "base", steps: [{ type: "RUN", args: [`head -c ${megabytes}000000 /dev/urandom > /tmp/noise`] }] });

void describe("a build with durable snapshots", host, () => {
  void test("is ready when other nodes can fetch it: its builder is killed at that moment, and it starts, by its name and by a new tag", async () => {
    const folder = mkdtempSync(join(tmpdir(), "svc-durable-"));
    const secret = join(folder, "secret");
    writeFileSync(secret, "d".repeat(40), { mode: 0o600 });
    const flags = [`--objects.url=file://${folder}/objects`, `--node.deployment_secret_file=${secret}`, "--snapshots.durable=true"];
    {
      await using deployment = await startFrontedNodes({ node: { runtime: RUNTIME, flags } });
      const { gateway, nodes } = deployment;
      const template = Template().fromTemplate("base").runCmd("head -c 20000000 /dev/urandom > /tmp/noise");
      const { buildID } = await build(gateway, template, "site");
      const named = (tag: string) => readFileSync(join(folder, "objects/names/site", tag), "utf8");
      assert.equal(named("default"), buildID);
      await gateway.call(assignTags, { target: "site", tags: ["stable"] });
      assert.equal(named("stable"), buildID);
      const holders = await Promise.all(nodes.map(async (node) => (await node.call(listTemplates, {})).some(({ names }) => names.includes("site"))));
      await nodes[holders.indexOf(true)]?.kill("SIGKILL");
      for (const templateID of ["site", "site:stable"]) assert.notEqual((await gateway.call(createSandbox, { templateID })).sandboxID, "");
    }
    rmSync(folder, { recursive: true });
  });

  void test("fails with the reason while object storage does not answer, and is ready when it is built again afterwards", needs("object-server"), async () => {
    await using server = await startObjectServer();
    await using relay = await startObjectRelay(server.endpoint);
    const flags = [`--objects.url=s3://${server.bucket}/svc`, `--objects.endpoint=${relay.endpoint}`, "--snapshots.durable=true"];
    await using node = await startNode({ runtime: RUNTIME, flags, env: server.env });
    relay.trouble("down");
    const refused = await ended(node, await startBuild(node, "site", noise(1) as never));
    assert.equal(refused.status, "error");
    assert.match(refused.reason?.message ?? "", /it was built, but is not in object storage.*build it again, its steps come from the cache/);
    await assert.rejects(node.call(createSandbox, { templateID: "site" }), { name: /TEMPLATE_NOT_FOUND|OBJECTS_UNAVAILABLE/ });
    relay.trouble("none");
    const again = await startBuild(node, "site", noise(1) as never);
    assert.equal((await ended(node, again)).status, "ready");
    assert.match(node.log(), new RegExp(`"buildID":"${again.buildID}"[^\n]*"a template was exported to object storage"`));
    await node.call(createSandbox, { templateID: "site" });
  });

  void test("interrupted by a kill before it was ready is not used by any node: its name in object storage means the same as on its node", async () => {
    const folder = mkdtempSync(join(tmpdir(), "svc-durable-"));
    const nameOf = () => (existsSync(join(folder, "names/site/default")) ? readFileSync(join(folder, "names/site/default"), "utf8") : undefined);
    {
      const flags = [`--objects.url=file://${folder}`, "--snapshots.durable=true"];
      await using node = await startNode({ runtime: RUNTIME, flags });
      const first = await startBuild(node, "site", noise(1) as never);
      assert.equal((await ended(node, first)).status, "ready");
      await node.restart("SIGKILL", { flags: ["--objects.bandwidth_mb_per_second=1"] });
      const second = await startBuild(node, "site", noise(20) as never);
      const chunks = () => readdirSync(join(folder, "chunks"), { recursive: true }).length;
      const before = chunks();
      await until("it is on its way", () => (readdirSync(join(folder, "intents")).length > 0 && chunks() > before ? true : undefined));
      assert.equal((await node.call(getBuildStatus, { ...second })).status, "building");
      assert.notEqual(nameOf(), second.buildID);
      await node.restart("SIGKILL", { flags: ["--objects.bandwidth_mb_per_second=0"] });
      assert.equal((await ended(node, second)).status, "error");
      assert.equal(nameOf(), first.buildID);
      await node.call(createSandbox, { templateID: "site" });
    }
    rmSync(folder, { recursive: true });
  });
});
