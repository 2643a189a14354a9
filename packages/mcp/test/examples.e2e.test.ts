// Runs the part of each example that needs no model: it reaches a sandbox and computes in it.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { needs } from "@svc/harness/needs.ts";
import { startNode } from "@svc/harness/node.ts";

const svc = fileURLToPath(new URL("../../cli/src/main.ts", import.meta.url));
const example = (name: string) => fileURLToPath(new URL(`../../../examples/${name}`, import.meta.url));
const BOUND_MS = 300_000;

void describe("the examples", needs("root", "runsc", "envd", "base"), () => {
  let node: Awaited<ReturnType<typeof startNode>>;
  before(async () => {
    node = await startNode({ runtime: "gvisor" });
  });
  after(() => node?.[Symbol.asyncDispose]());

  function run(command: string, args: readonly string[]): Promise<{ code: number | null; output: string }> {
    const env: Record<string, string> = {
      ...process.env,
      SVC_URL: node.url,
      SDK_API_KEY: node.apiKey,
      SVC_HOME: node.home,
      PYTHONPATH: process.env["SVC_PYTHON_CLIENTS"] ?? "",
    };
    delete env["OPENAI_API_KEY"];
    const child = spawn(command, args, { env, stdio: ["ignore", "pipe", "pipe"], timeout: BOUND_MS });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text: string) => (output += text));
    return new Promise((resolve) => child.once("close", (code) => resolve({ code, output })));
  }
  const typescript = (name: string, ...args: string[]) => run(process.execPath, ["--disable-warning=ExperimentalWarning", svc, "run", example(name), ...args]);

  for (const name of ["vercel-ai-sdk.ts", "openai-agents.ts", "langchain.ts"]) {
    void test(`${name} shows the tools and computes in a sandbox`, async () => {
      const { code, output } = await typescript(name);
      assert.equal(code, 0, output);
      assert.match(output, /tools: .*run_code.*sandbox_fork/);
      assert.match(output, /42/);
    });
  }

  const python = `${process.env["SVC_PYTHON_CLIENTS"] ?? "/nowhere"}/agents`;
  void test("openai_agents.py shows the tools and computes in a sandbox", {
    skip: existsSync(python) ? false : "the OpenAI Agents SDK is not installed",
  }, async () => {
    const { code, output } = await run("python3", [example("openai_agents.py")]);
    assert.equal(code, 0, output);
    assert.match(output, /tools: .*run_code.*sandbox_fork/);
    assert.match(output, /42/);
  });

  void test("rollouts.ts forks one state and judges each attempt", async () => {
    const { code, output } = await typescript("rollouts.ts", "3");
    assert.equal(code, 0, output);
    assert.match(output, /attempt 0: reward 1\nattempt 1: reward 0\nattempt 2: reward 0\n/);
  });
});
