// The template browser, built on first use, with Playwright outside and inside.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Sandbox } from "e2b";
import { desktopSdk } from "../src/desktop-sdk.ts";
import { commandsOf } from "../src/documents.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { recipeBuilt } from "../src/recipe-build.ts";
import { ROOT, runGuide } from "../src/run-guide.ts";
import { connectionTo } from "../src/template.ts";
import { browserTests } from "./desktop-browser.suite.ts";

void describe("the template browser", needs("root", "runsc", "envd", "base", "python3"), () => {
  let node: TestNode;
  before(async () => {
    node = await startNode({ runtime: "gvisor", internet: true });
    // A create that begins the build is refused until it is ready.
    await Sandbox.create("browser", connectionTo(node)).then(
      (sandbox) => sandbox.kill(),
      (error: unknown) => assert.match(String(error), /template 'browser' is being built on its first use/),
    );
    await recipeBuilt(node, "browser");
  });
  after(() => node?.[Symbol.asyncDispose]());

  browserTests(() => node);

  void test("the commands of docs/desktop.md about the browser work", async () => {
    const guide = readFileSync(join(ROOT, "docs/desktop.md"), "utf8");
    const commands = `eval "$(./svc auth --export)"\n${commandsOf(guide.slice(guide.indexOf("\n## The browser")))}`;
    const { code, said } = await runGuide(commands, { SVC_URL: node.url, SDK_API_KEY: node.apiKey, PYTHONPATH: desktopSdk() });
    assert.equal(code, 0, said);
  });
});
