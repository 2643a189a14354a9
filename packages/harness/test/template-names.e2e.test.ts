// Each way to name a template or one of its builds, on a node and through a gateway, with the key in the form that old SDKs want.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { sdkKeyOf } from "@svc/contract/sdk-key.ts";
import { Sandbox, Template } from "e2b";
import { type FrontedNodes, KEY, startFrontedNodes } from "../src/fronted-nodes.ts";
import { needs } from "../src/needs.ts";
import { build, connectionTo } from "../src/template.ts";

void describe("a template with two builds", needs("root", "runsc", "envd", "base"), () => {
  let deployment: FrontedNodes;
  let names: { readonly of: "one" | "two"; readonly name: string }[];
  const spelt = sdkKeyOf(KEY);
  before(async () => {
    deployment = await startFrontedNodes({ nodes: 1, node: { runtime: "gvisor" } });
    const entry = { url: deployment.gateway.url, apiKey: spelt };
    const version = (text: string) => Template().fromTemplate("base").runCmd(`echo ${text} > /tmp/version`);
    const one = await build(entry, version("one"), "named", { tags: ["v1"] });
    const two = await build(entry, version("two"), "named", { tags: ["default", "v2"] });
    assert.equal(one.templateID, two.templateID);
    names = [
      { of: "two", name: "named" },
      { of: "two", name: "named:default" },
      { of: "one", name: "named:v1" },
      { of: "one", name: `named:${one.buildID}` },
      { of: "two", name: `named:${two.buildID}` },
      { of: "two", name: one.templateID },
      { of: "one", name: `${one.templateID}:v1` },
      { of: "one", name: `${one.templateID}:${one.buildID}` },
      { of: "one", name: one.buildID },
    ];
  });
  after(() => deployment?.[Symbol.asyncDispose]());

  void test("starts by name, tag, id and build, and other builds can begin from it by tag and build", async () => {
    const entry = { url: deployment.gateway.url, apiKey: spelt };
    const connection = connectionTo(entry);
    const shown = async (template: string) => {
      const sandbox = await Sandbox.create(template, { ...connection, timeoutMs: 120_000 });
      try {
        return (await sandbox.commands.run("cat /tmp/version")).stdout.trim();
      } finally {
        await sandbox.kill();
      }
    };
    for (const { of, name } of names) assert.equal(await shown(name), of, `create ${name}`);
    for (const [at, { of, name }] of names.filter(({ name: each }) => each !== "named" && /[-:]/.test(each)).entries()) {
      await build(entry, Template().fromTemplate(name).runCmd("true > /tmp/more"), `from-${at}`);
      assert.equal(await shown(`from-${at}`), of, `build from ${name}`);
    }
  });

  void test("gets tags under each of its names, and is deleted by its name", async () => {
    const connection = connectionTo({ url: deployment.gateway.url, apiKey: spelt });
    for (const [at, { name }] of names.entries()) {
      const { tags } = await Template.assignTags(name, [`moved-${at}`], connection);
      assert.deepEqual(tags, [`moved-${at}`], name);
    }
    const own = names.map((_, at) => `moved-${at}`);
    const listed = (await Template.getTags("named", connection)).map(({ tag }) => tag);
    assert.deepEqual(
      own.filter((tag) => !listed.includes(tag)),
      [],
    );
    await Template.removeTags("named", own, connection);
    assert.equal(await Template.exists("named:v1", connection), true);
    const remove = await fetch(`${deployment.gateway.url}/templates/named`, { method: "DELETE", headers: { "x-api-key": spelt } });
    assert.equal(remove.status, 204);
    await assert.rejects(Sandbox.create("named", connection), /not found/);
  });

  void test("node and gateway accept the deployment's key in its e2b_ spelling, and refuse any other e2b_ key", async () => {
    for (const { url } of [deployment.gateway, ...deployment.nodes]) {
      const status = async (key: string) => (await fetch(`${url}/v2/sandboxes`, { headers: { "x-api-key": key } })).status;
      assert.deepEqual([await status(spelt), await status(KEY), await status(`e2b_${"0".repeat(40)}`)], [200, 200, 401]);
    }
  });
});
