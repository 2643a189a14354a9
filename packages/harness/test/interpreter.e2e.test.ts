// The code interpreter in its small form, with both SDKs of E2B and with MCP.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { buildSmallInterpreter } from "../src/interpreter-template.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { runPython } from "../src/python.ts";
import { interpreterTests } from "./interpreter.suite.ts";

void describe("a sandbox of code-interpreter-v1", needs("root", "runsc", "envd", "base", "python-clients"), () => {
  let node: TestNode;
  before(async () => {
    node = await startNode({ runtime: "gvisor", internet: true });
    await buildSmallInterpreter(node);
  });
  after(() => node?.[Symbol.asyncDispose]());

  interpreterTests(() => node);

  void test("every call of the Python SDK works, sync and async", async () => {
    const { code, said } = await runPython(node, new URL("interpreter_python.py", import.meta.url));
    assert.equal(code, 0, said);
  });
});
