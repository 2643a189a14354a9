// The unmodified E2B CLI against a node: it speaks the older generation of the API.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";

const BOUND_MS = 60_000;
const manifest = createRequire(import.meta.url).resolve("@e2b/cli/package.json");

async function e2b(node: TestNode, ...words: string[]): Promise<{ code: number | null; out: string; said: string }> {
  const env = { ...process.env, E2B_API_URL: node.url, E2B_SANDBOX_URL: node.url, E2B_API_KEY: node.apiKey, HOME: node.home };
  const child = spawn(process.execPath, [join(dirname(manifest), "dist/index.js"), ...words], { env, stdio: ["ignore", "pipe", "pipe"], timeout: BOUND_MS });
  let out = "";
  let said = "";
  child.stdout.on("data", (chunk: Buffer) => void (out += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => void (said += chunk.toString()));
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  return { code, out, said: out + said };
}

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
