// Templates that are built on one of two nodes and start on the other: fetched once, verified, named by their builder, deleted everywhere.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { setNodeStatus } from "@svc/contract/node-control.ts";
import { getNode, listNodes } from "@svc/contract/nodes.ts";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { deleteTemplate, listTemplates } from "@svc/contract/template.ts";
import { requestTemplate } from "@svc/contract/template-build.ts";
import { Sandbox, Template } from "e2b";
import { allUp, type FrontedNodes, startFrontedNodes } from "../src/fronted-nodes.ts";
import { startGateway, type TestGateway } from "../src/gateway.ts";
import { needs } from "../src/needs.ts";
import type { TestNode } from "../src/node.ts";
import { build, connectionTo } from "../src/template.ts";
import { until } from "../src/until.ts";

/** Started by a program that remembers when; its memory is transferred. */
const counting = (text: string) =>
  Template().fromTemplate("base").runCmd(`echo ${text} > /tmp/version`).setStartCmd("date +%s%N > /tmp/started; sleep 100000", "test -s /tmp/started");

void describe("a template that one of two nodes built", needs("root", "runsc", "envd", "base", "xxh128sum"), () => {
  let folder: string;
  let deployment: FrontedNodes;
  let gateway: TestGateway;
  let builder: TestNode;
  let other: TestNode;

  const storage = () => join(folder, "objects");
  const buildNamed = (name: string) => {
    const path = join(storage(), "names", name, "default");
    return existsSync(path) ? readFileSync(path, "utf8") : undefined;
  };
  const isShared = (name: string, buildID: string) => until(`${name} is in object storage`, () => (buildNamed(name) === buildID ? true : undefined));
  const nodeIDOf = async (node: TestNode) =>
    (await gateway.call(listNodes, {})).find(({ id }) => id === readFileSync(join(node.home, "node-id"), "utf8").trim())?.id ?? assert.fail();
  const holds = async (node: TestNode, name: string) => (await node.call(listTemplates, {})).some(({ names }) => names.includes(name));
  const setStatus = async (node: TestNode, status: "ready" | "draining") => {
    await gateway.call(setNodeStatus, { nodeID: await nodeIDOf(node), status });
    await until(`the node is ${status}`, async () => ((await gateway.call(getNode, { nodeID: await nodeIDOf(node) })).status === status ? true : undefined));
  };
  const fetches = () => other.log().split("a template was fetched from object storage").length - 1;
  async function shown(template: string, command: string): Promise<string> {
    const sandbox = await Sandbox.create(template, { ...connectionTo(gateway), timeoutMs: 300_000 });
    try {
      return (await sandbox.commands.run(command)).stdout.trim();
    } finally {
      await sandbox.kill();
    }
  }

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "svc-template-transfer-"));
    const secret = join(folder, "secret");
    writeFileSync(secret, "g".repeat(40), { mode: 0o600 });
    deployment = await startFrontedNodes({
      node: { runtime: "gvisor", flags: [`--objects.url=file://${storage()}`, `--node.deployment_secret_file=${secret}`, "--objects.collect_grace_seconds=0"] },
    });
    gateway = deployment.gateway;
    const { buildID } = await build(gateway, counting("one"), "site");
    const [first, second] = deployment.nodes as [TestNode, TestNode];
    [builder, other] = (await holds(first, "site")) ? [first, second] : [second, first];
    await isShared("site", buildID);
  });
  after(async () => {
    await deployment?.[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
  });

  void test("starts on the other when its builder may not, with its memory; it is fetched once and listed once", async () => {
    const started = await shown("site", "cat /tmp/started");
    await setStatus(builder, "draining");
    assert.deepEqual(await Promise.all([shown("site", "cat /tmp/started"), shown("site:default", "cat /tmp/started")]), [started, started]);
    assert.equal(fetches(), 1);
    await setStatus(builder, "ready");
    const listed = await gateway.call(listTemplates, {});
    assert.equal(listed.filter(({ names }) => names.includes("site")).length, 1);
    const { cachedBuilds } = await gateway.call(getNode, { nodeID: await nodeIDOf(other) });
    assert.ok(cachedBuilds.includes(listed.find(({ names }) => names.includes("site"))?.templateID ?? ""));
  });

  void test("means its newest build everywhere as soon as that is ready, by its name and by its tags", async () => {
    const { buildID } = await build(gateway, counting("two"), "site");
    // Before object storage has it only its builder can start it; afterwards both do.
    assert.equal(await shown("site", "cat /tmp/version"), "two");
    await isShared("site", buildID);
    await setStatus(builder, "draining");
    assert.equal(await shown("site", "cat /tmp/version"), "two");
    await setStatus(builder, "ready");
    assert.deepEqual(await Promise.all([1, 2].map(() => shown("site", "cat /tmp/version"))), ["two", "two"]);
  });

  void test("is what a build on the other node begins with", async () => {
    // By name the gateway chooses a node, so that some of these are the other one's.
    for (let at = 0; ; at++) {
      const name = `above-${at}`;
      await build(gateway, Template().fromTemplate("site").runCmd("echo more > /tmp/more"), name);
      assert.equal(await shown(name, "cat /tmp/version /tmp/more"), "two\nmore");
      if (await holds(other, name)) break;
    }
  });

  void test("is refused with the reason where a chunk of it is damaged, and nothing of it stays", async () => {
    const earlier = new Set(chunks());
    const { buildID } = await build(
      gateway,
      Template().fromTemplate("base").runCmd("head -c 20000000 /dev/urandom > /home/user/noise"),
      await nameFor(builder),
    );
    await isShared(name, buildID);
    const layers = () => readdirSync(join(other.home, "layers")).length;
    const had = layers();
    const own = chunks().filter((path) => !earlier.has(path));
    const kept = own.map((path) => readFileSync(path));
    for (const [at, path] of own.entries()) writeFileSync(path, Buffer.alloc(kept[at]?.length ?? 0, 1));
    await setStatus(builder, "draining");
    await assert.rejects(gateway.call(createSandbox, { templateID: name }), {
      name: "SNAPSHOT_DAMAGED",
      message: new RegExp(`build ${buildID} of template '${name}' could not be fetched.*is not what was written`),
    });
    assert.equal(layers(), had);
    for (const [at, path] of own.entries()) writeFileSync(path, kept[at] ?? "");
  });

  void test("is fetched anew after a kill -9 in the midst of it", async () => {
    await other.restart("SIGKILL", { flags: ["--objects.bandwidth_mb_per_second=2"] });
    await otherIsReady();
    const coming = () => readdirSync(join(other.home, "snapshot-transfer")).some((each) => each.startsWith("in-"));
    const create = gateway.call(createSandbox, { templateID: name }).catch((error: Error) => error.name);
    await until("it is on its way", () => (coming() ? true : undefined));
    await other.kill("SIGKILL");
    assert.equal(await create, "NODE_LOST");
    await other.start();
    await otherIsReady();
    assert.equal(coming(), false);
    assert.equal(await shown(name, "stat -c %s noise"), "20000000");
    await setStatus(builder, "ready");
  });

  void test("is deleted everywhere", async () => {
    const templateID = (await builder.call(listTemplates, {})).find(({ names }) => names.includes("site"))?.templateID ?? assert.fail();
    const holdsCopy = async () => (await gateway.call(getNode, { nodeID: await nodeIDOf(other) })).cachedBuilds.includes(templateID);
    assert.equal(await holdsCopy(), true);
    await gateway.call(deleteTemplate, { templateID: "site" });
    await until("its copy is gone", async () => ((await holdsCopy()) ? undefined : true));
    await until("object storage forgets it", () => (buildNamed("site") === undefined ? true : undefined));
    // One that goes while it is looked at is gone.
    const isThere = (each: string) => {
      const path = join(storage(), "manifests/templates", each);
      return existsSync(path) && spawnSync("grep", ["-q", templateID, path]).status === 0;
    };
    await until("its builds are gone", () => (readdirSync(join(storage(), "manifests/templates")).some(isThere) ? undefined : true));
    for (const entry of [gateway, builder, other]) await assert.rejects(entry.call(createSandbox, { templateID: "site" }), { name: "TEMPLATE_NOT_FOUND" });
  });

  void test("starts on the other while its builder is dead; once that one left the deployment it can be deleted there", async () => {
    await builder.kill("SIGKILL");
    assert.equal(await shown(name, "stat -c %s noise"), "20000000");
    await assert.rejects(gateway.call(deleteTemplate, { templateID: name }), { name: "NODE_LOST" });
    // A gateway that never saw the builder.
    await using rest = await startGateway({ nodes: [other.url], apiKey: gateway.apiKey });
    await allUp(rest);
    await rest.call(createSandbox, { templateID: `${name}:default` });
    await rest.call(deleteTemplate, { templateID: name });
    assert.equal(buildNamed(name), undefined);
    await assert.rejects(rest.call(createSandbox, { templateID: name }), { name: "TEMPLATE_NOT_FOUND" });
    await assert.rejects(rest.call(deleteTemplate, { templateID: name }), { name: "TEMPLATE_NOT_FOUND" });
  });

  let name = "";
  let made = 0;
  /** One that the gateway gives to this node: it is asked for until it does. */
  async function nameFor(node: TestNode): Promise<string> {
    for (;;) {
      name = `made-${made++}`;
      await gateway.call(requestTemplate, { name: name });
      if (await holds(node, name)) return name;
    }
  }
  const chunks = () =>
    readdirSync(join(storage(), "chunks"), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name));
  const otherIsReady = () =>
    until("the node is up again", async () => ((await gateway.call(getNode, { nodeID: await nodeIDOf(other) })).status === "ready" ? true : undefined));
});
