// The unmodified E2B SDKs through a gateway in front of two nodes: a sandbox's life in Python, commands and files in JavaScript.
import assert from "node:assert/strict";
import { test } from "node:test";
import { gatewayEntry } from "../src/fronted-nodes.ts";
import { needs } from "../src/needs.ts";
import { runPython } from "../src/python.ts";
import { sdkSuite } from "./sdk-js.suite.ts";

const given = needs("root", "runsc", "envd", "base", "python3", "python-clients");

void test("the E2B Python SDK pauses, resumes, copies, measures and lists sandboxes of two nodes through a gateway", given, async (context) => {
  await using entry = await gatewayEntry("gvisor");
  const { code, said } = await runPython(entry, new URL("./sdk_python_life.py", import.meta.url));
  for (const line of said.split("\n")) if (/ \.\.\. /.test(line)) context.diagnostic(line);
  assert.equal(code, 0, said);
  assert.match(said, /Ran 10 tests/);
});

sdkSuite("runc", ["runc"], " through a gateway", gatewayEntry);
