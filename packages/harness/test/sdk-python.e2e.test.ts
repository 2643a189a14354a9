// The unmodified E2B Python SDK against a node on gVisor; the suite itself is sdk_python.py.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";

const BOUND_MS = 300_000;

void test("the E2B Python SDK, sync and async, works unmodified", needs("root", "runsc", "envd", "base", "python3", "python-clients"), async (context) => {
  await using node = await startNode({ runtime: "gvisor" });
  const env = {
    ...process.env,
    PYTHONPATH: process.env["SVC_PYTHON_CLIENTS"],
    E2B_API_URL: node.url,
    E2B_SANDBOX_URL: node.url,
    E2B_API_KEY: node.apiKey,
  };
  const child = spawn("python3", ["-W", "ignore", fileURLToPath(new URL("./sdk_python.py", import.meta.url))], {
    stdio: ["ignore", "pipe", "pipe"],
    env,
    timeout: BOUND_MS,
  });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => void (said += chunk.toString()));
  const code = await new Promise((resolve) => child.once("close", resolve));
  for (const line of said.split("\n")) if (/ \.\.\. /.test(line)) context.diagnostic(line);
  assert.equal(code, 0, said);
  assert.match(said, /Ran 12 tests/);
});
