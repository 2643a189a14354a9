// The whole code interpreter: built on first use from Debian, PyPI and npm, with the libraries and languages that it promises.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Sandbox } from "@e2b/code-interpreter";
import { SvcClient } from "@svc/contract/client.ts";
import { commandsOf } from "../src/documents.ts";
import { interpreterRecipe } from "../src/interpreter-template.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { runPython } from "../src/python.ts";
import { ROOT, runGuide } from "../src/run-guide.ts";
import { connectionTo } from "../src/template.ts";
import { interpreterTests } from "./interpreter.suite.ts";

void describe("the whole template code-interpreter-v1", needs("root", "runsc", "envd", "base", "python-clients"), () => {
  let node: TestNode;
  before(async () => {
    node = await startNode({ runtime: "gvisor", internet: true });
  });
  after(() => node?.[Symbol.asyncDispose]());

  void test("the first create begins the build and says so, and once it is built a create succeeds", async () => {
    const begun = await Sandbox.create(connectionTo(node)).catch((error: unknown) => error);
    if (begun instanceof Sandbox) await begun.kill();
    else {
      // The SDK says that a retry will help, as it does for a server that is busy.
      assert.match(String(begun), /please retry - template 'code-interpreter-v1' is being built on its first use \(step \d+ of 10\)/);
    }
    const { templates } = new SvcClient({ baseURL: node.url, apiKey: node.apiKey });
    const { templateID, builds } = await templates.get(interpreterRecipe.name);
    const entries = templates.follow({ templateID, buildID: builds[0]?.buildID ?? "" });
    const lines: string[] = [];
    for (;;) {
      const next = await entries.next();
      if (next.done !== true) lines.push(next.value.message);
      else {
        assert.equal(next.value?.status, "ready", `${next.value?.reason?.message}\n${lines.slice(-40).join("\n")}`);
        break;
      }
    }
    const sandbox = await Sandbox.create(connectionTo(node));
    assert.equal((await sandbox.runCode("6 * 7")).text, "42");
    await sandbox.kill();
  });

  void test("the commands of docs/interpreter.md work", async () => {
    // The node of this test has built the template already.
    const commands = commandsOf(readFileSync(join(ROOT, "docs/interpreter.md"), "utf8")).replace("./svc up -d\n", "");
    const { code, said } = await runGuide(commands, { SVC_URL: node.url, SDK_API_KEY: node.apiKey, PYTHONPATH: process.env["SVC_PYTHON_CLIENTS"] });
    assert.equal(code, 0, said);
  });

  interpreterTests(() => node);

  void test("every call of the Python SDK works, with charts, libraries, JavaScript and TypeScript", async () => {
    process.env["SVC_TEST_WHOLE"] = "yes";
    const { code, said } = await runPython(node, new URL("interpreter_python.py", import.meta.url));
    assert.equal(code, 0, said);
  });
});
