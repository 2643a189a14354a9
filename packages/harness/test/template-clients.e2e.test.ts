// Template builds with the unmodified E2B Python SDK, and with the E2B CLI from a Dockerfile.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { getTemplate } from "@svc/contract/template.ts";
import { Sandbox } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { connectionTo, contextFolder } from "../src/template.ts";

const BOUND_MS = 600_000;
const cli = join(dirname(createRequire(import.meta.url).resolve("@e2b/cli/package.json")), "dist/index.js");

function run(node: TestNode, argv: readonly string[], cwd?: string): Promise<{ code: number | null; said: string }> {
  const env = {
    ...process.env,
    PYTHONPATH: process.env["SVC_PYTHON_CLIENTS"],
    E2B_API_URL: node.url,
    E2B_SANDBOX_URL: node.url,
    E2B_API_KEY: node.apiKey,
    HOME: node.home,
  };
  const child = spawn(argv[0] ?? "", argv.slice(1), { env, cwd, stdio: ["ignore", "pipe", "pipe"], timeout: BOUND_MS });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => void (said += chunk.toString()));
  return new Promise((resolve) => child.once("close", (code) => resolve({ code, said })));
}

void test("the E2B Python SDK, sync and async, builds templates unmodified", needs("root", "runsc", "envd", "base", "python3", "python-clients"), async () => {
  await using node = await startNode({ runtime: "gvisor" });
  const { code, said } = await run(node, ["python3", "-W", "ignore", fileURLToPath(new URL("./template_python.py", import.meta.url))]);
  assert.equal(code, 0, said);
  assert.match(said, /Ran 3 tests/);
});

void test("the E2B CLI builds a template from a Dockerfile, lists, publishes and deletes it", needs("root", "runsc", "envd", "base"), async () => {
  await using node = await startNode({ runtime: "gvisor" });
  using context = contextFolder({
    "app/main.py": "import os; print(os.environ['WHO'], os.getcwd())\n",
    Dockerfile: "FROM e2bdev/base\nENV WHO=docker\nWORKDIR /srv/app\nCOPY app/ .\nRUN echo built > built && id -un >> built\n",
  });
  const e2b = (...args: string[]) => run(node, [process.execPath, cli, ...args], context.path);
  const created = await e2b("template", "create", "from-docker", "-d", "Dockerfile", "--cpu-count", "1", "--memory-mb", "512");
  assert.equal(created.code, 0, created.said);
  const sandbox = await Sandbox.create("from-docker", connectionTo(node));
  assert.equal((await sandbox.commands.run("python3 main.py; cat built; whoami")).stdout, "docker /srv/app\nbuilt\nroot\nuser\n");
  await sandbox.kill();
  const { templateID, cpuCount, memoryMB } = await node.call(getTemplate, { templateID: "from-docker" });
  assert.deepEqual([cpuCount, memoryMB], [1, 512]);
  assert.match((await e2b("template", "list")).said, new RegExp(templateID));
  assert.equal((await e2b("template", "publish", templateID, "-y")).code, 0);
  assert.equal((await node.call(getTemplate, { templateID })).public, true);
  const deleted = await e2b("template", "delete", templateID, "-y");
  assert.equal(deleted.code, 0, deleted.said);
  await assert.rejects(node.call(getTemplate, { templateID }), { name: "TEMPLATE_NOT_FOUND" });
  const failing = await e2b("template", "create", "no-docker", "-d", "nowhere");
  assert.notEqual(failing.code, 0);
});
