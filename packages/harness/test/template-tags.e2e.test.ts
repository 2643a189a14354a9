// The queries about templates that E2B's newest clients make, at a node and through a gateway, with the generated client of the Python SDK.
import assert from "node:assert/strict";
import { test } from "node:test";
import { buildTemplate, requestTemplate } from "@svc/contract/template-build.ts";
import { startFrontedNodes } from "../src/fronted-nodes.ts";
import { needs } from "../src/needs.ts";
import type { TestNode } from "../src/node.ts";
import { runPython } from "../src/python.ts";
import { ended } from "../src/template.ts";

/** Builds a template that is `base` with another environment; no step runs. */
async function built(node: TestNode, name: string): Promise<string> {
  const { templateID, buildID } = await node.call(requestTemplate, { name });
  await node.call(buildTemplate, { templateID, buildID, fromTemplate: "base", steps: [{ type: "ENV", args: ["NAME", name] }] });
  const { status, reason } = await ended(node, { templateID, buildID });
  assert.equal(status, "ready", reason?.message);
  return buildID;
}

void test(
  "E2B's Python client counts, finds and pages through a template's tags, and sees which builds each tag named",
  needs("root", "runc", "envd", "base", "python3", "python-clients"),
  async () => {
    await using deployment = await startFrontedNodes({ nodes: 1 });
    const [node] = deployment.nodes as [TestNode];
    const first = await built(node, "tagged:one");
    const second = await built(node, "tagged:two");
    const headers = { "x-api-key": node.apiKey, "content-type": "application/json" };
    const tag = (target: string, tags: string[]) => fetch(`${node.url}/templates/tags`, { method: "POST", headers, body: JSON.stringify({ target, tags }) });
    for (const [target, tags] of [
      ["tagged:one", ["stable", "old"]],
      ["tagged:two", ["stable"]],
      ["tagged:one", ["stable"]],
    ] as const)
      assert.equal((await tag(target, [...tags])).status, 201);

    process.env["SVC_TEST_BUILDS"] = `${first},${second}`;
    for (const at of [node, deployment.gateway]) {
      const { code, said } = await runPython(at, new URL("./template_tags.py", import.meta.url));
      assert.equal(code, 0, said);
      assert.match(said, /Ran 6 tests/);
    }

    const owned = (await (await fetch(`${node.url}/templates/tagged`, { headers })).json()) as { createdBy: { id: string; email: null } };
    assert.match(owned.createdBy.id, /^[0-9a-f-]{36}$/);
    const other = (await (await fetch(`${node.url}/templates/base`, { headers })).json()) as { createdBy: null };
    assert.equal(other.createdBy, null, "set-up's templates were made by no client");
    const bad = await fetch(`${node.url}/templates/tagged/tags/stable/assignments?cursor=x`, { headers });
    assert.equal(bad.status, 400);
    assert.match(await bad.text(), /expected the nextCursor of a page/);
    const kept = async () => (await (await fetch(`${node.url}/templates/tagged/tags/stable/assignments`, { headers })).json()) as { data: object[] };
    const before = await kept();
    await node.restart("SIGKILL");
    assert.deepEqual(await kept(), before, "the history survives a kill");
  },
);
