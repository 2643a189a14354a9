// Templates that E2B has and a deployment refuses: mcp-gateway anywhere, and desktop where sandboxes have too little memory for it.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Sandbox, Template } from "e2b";
import { type FrontedNodes, startFrontedNodes } from "../src/fronted-nodes.ts";
import { needs } from "../src/needs.ts";
import { runGuide } from "../src/run-guide.ts";
import { build, connectionTo } from "../src/template.ts";

const NOT_OFFERED = /template 'mcp-gateway' is not offered: it starts MCP servers from a catalogue of container images.*use `svc mcp`/;

void describe("templates that this deployment refuses", needs("root", "runsc", "envd", "base"), () => {
  let deployment: FrontedNodes;
  before(async () => {
    deployment = await startFrontedNodes({ nodes: 1, node: { runtime: "gvisor", flags: ["--sandbox.memory_mb=512"] } });
  });
  after(() => deployment?.[Symbol.asyncDispose]());
  const entries = () => [...deployment.nodes, deployment.gateway];

  void test("Sandbox.create with mcp, the template by name, and a build on top of it say why there is none and what to use instead", async () => {
    for (const entry of entries()) {
      const connection = connectionTo(entry);
      await assert.rejects(Sandbox.create({ ...connection, mcp: { exa: { apiKey: "key" } } }), NOT_OFFERED);
      await assert.rejects(Sandbox.create("mcp-gateway", connection), NOT_OFFERED);
      await assert.rejects(build(entry, Template().fromTemplate("mcp-gateway").runCmd("true"), "with-mcp"), NOT_OFFERED);
    }
  });

  void test("svc template add mcp-gateway says the same", async () => {
    const { code, said } = await runGuide("./svc template add mcp-gateway", { SVC_URL: deployment.gateway.url, SDK_API_KEY: deployment.gateway.apiKey });
    assert.equal(code, 2);
    assert.match(said, NOT_OFFERED);
  });

  void test("a template of one's own may have that name", async () => {
    const [node] = deployment.nodes;
    assert.ok(node !== undefined);
    await build(node, Template().fromTemplate("base").runCmd("true"), "mcp-gateway");
    const sandbox = await Sandbox.create("mcp-gateway", connectionTo(node));
    await sandbox.kill();
  });

  void test("a node whose sandboxes have too little memory for a recipe says so, and begins no build", async () => {
    for (const entry of entries()) {
      for (const name of ["desktop", "browser", "code-interpreter-v1"]) {
        await assert.rejects(
          Sandbox.create(name, connectionTo(entry)),
          new RegExp(`template '${name}' needs 2048 MB of memory, .* 512; raise sandbox.memory_mb`),
        );
        const listed = (await (await fetch(`${entry.url}/templates`, { headers: { "x-api-key": entry.apiKey } })).json()) as { aliases: string[] }[];
        assert.ok(listed.length > 0 && !listed.some(({ aliases }) => aliases.includes(name)), name);
      }
    }
  });
});
