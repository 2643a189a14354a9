// The rest of the E2B SDKs' suites through a gateway, on gVisor; `sdk-gateway.e2e.test.ts` has the first part.
import assert from "node:assert/strict";
import { test } from "node:test";
import { gatewayEntry } from "../src/fronted-nodes.ts";
import { needs } from "../src/needs.ts";
import { runPython } from "../src/python.ts";
import { sdkSuite } from "./sdk-js.suite.ts";

const given = needs("root", "runsc", "envd", "base", "python3", "python-clients");

void test("the E2B Python SDK, sync and async, works unmodified through a gateway", given, async (context) => {
  await using entry = await gatewayEntry("gvisor");
  const { code, said } = await runPython(entry, new URL("./sdk_python.py", import.meta.url));
  for (const line of said.split("\n")) if (/ \.\.\. /.test(line)) context.diagnostic(line);
  assert.equal(code, 0, said);
  assert.match(said, /Ran 12 tests/);
});

sdkSuite("gvisor", ["runsc"], " through a gateway", gatewayEntry);
