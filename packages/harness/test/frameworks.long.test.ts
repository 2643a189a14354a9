// The frameworks' own classes for E2B, unmodified and without a model, and the table of docs/agents.md, which says what each used.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { sdkKeyOf } from "@svc/contract/sdk-key.ts";
import { confine, unconfine } from "../src/confine.ts";
import { driveFramework, type Framework, frameworks } from "../src/frameworks.ts";
import { buildSmallInterpreter } from "../src/interpreter-template.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";

/** Some of them: SVC_TEST_FRAMEWORKS="agno,crewai". */
const picked = process.env["SVC_TEST_FRAMEWORKS"]?.split(",");
const guide = new URL("../../../docs/agents.md", import.meta.url);

void describe("agents' frameworks", needs("root", "runsc", "envd", "base", "python3", "npm", "ip", "unshare"), () => {
  let node: TestNode;
  const done = new Map<Framework, { used: string; release: string }>();
  before(async () => {
    node = await startNode({ runtime: "gvisor", internet: true });
    await buildSmallInterpreter(node);
    // From here on sandboxes reach nothing outside of this machine.
    confine(node.home);
  });
  after(async () => {
    unconfine(node.home);
    await node?.[Symbol.asyncDispose]();
  });

  for (const framework of frameworks.filter(({ drive }) => picked?.includes(drive) ?? true)) {
    void test(`${framework.title} drives sandboxes by its own classes`, async () => {
      done.set(framework, await driveFramework(framework, node, sdkKeyOf(node.apiKey)));
    });
  }

  void test("the guide's table shows what each framework used", { skip: picked === undefined ? false : "some frameworks were picked" }, () => {
    const text = readFileSync(guide, "utf8");
    const rows = [...done].map(([{ title }, { used, release }]) => `| ${title} | ${release} | ${used} |\n`).join("");
    const table = `| framework | release | used without a model |\n|---|---|---|\n${rows}`;
    const whole = text.replace(/(<!-- frameworks -->\n)[\s\S]*?(<!-- end of frameworks -->)/, (_, begin: string, end: string) => begin + table + end);
    if (process.env["SVC_WRITE_TABLE"] === "yes") writeFileSync(guide, whole);
    assert.equal(text, whole, "run it with SVC_WRITE_TABLE=yes to write the table");
  });
});
