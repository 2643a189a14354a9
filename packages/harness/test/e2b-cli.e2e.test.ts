// The unmodified E2B CLI against a node; it uses the older generation of the API.
import assert from "node:assert/strict";
import { test } from "node:test";
import { e2b } from "../src/e2b-cli.ts";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";

void test("the E2B CLI creates, lists, describes, runs a command in, and kills a sandbox", needs("root", "envd", "base", "runc"), async () => {
  await using node = await startNode({ runtime: "runc" });
  const created = await e2b(node, "sandbox", "create", "base", "--detach");
  const sandboxID = /\bi[a-z0-9]{19}\b/.exec(created.said)?.[0] ?? "";
  assert.notEqual(sandboxID, "", created.said);
  const listed = await e2b(node, "sandbox", "list", "--format", "json");
  assert.equal((JSON.parse(listed.out) as { sandboxId: string }[])[0]?.sandboxId, sandboxID);
  assert.match((await e2b(node, "sandbox", "info", sandboxID)).said, new RegExp(sandboxID));
  const ran = await e2b(node, "sandbox", "exec", sandboxID, "python3 -c 'print(6*7)'");
  assert.match(ran.out, /^42$/m, ran.said);
  assert.equal((await e2b(node, "template", "list")).code, 0);
  const killed = await e2b(node, "sandbox", "kill", sandboxID);
  assert.equal(killed.code, 0, killed.said);
  assert.deepEqual(JSON.parse((await e2b(node, "sandbox", "list", "--format", "json")).out), []);
});
