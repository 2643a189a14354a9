// A sandbox's life through the unmodified E2B Python SDK, on gVisor; the suite itself is sdk_python_life.py.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { runPython } from "../src/python.ts";

const given = needs("root", "runsc", "envd", "base", "python3", "python-clients");

void test("the E2B Python SDK, sync and async, pauses, resumes, copies, measures and lists sandboxes", given, async (context) => {
  await using node = await startNode({ runtime: "gvisor" });
  const { code, said } = await runPython(node, new URL("./sdk_python_life.py", import.meta.url));
  for (const line of said.split("\n")) if (/ \.\.\. /.test(line)) context.diagnostic(line);
  assert.equal(code, 0, said);
  assert.match(said, /Ran 10 tests/);
});
