// The lines that the runner prints below the name of a failed part.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempDisposableSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { whyOf } from "./why.ts";

function reportOf(source: string): string {
  using folder = mkdtempDisposableSync(join(tmpdir(), "svc-why-"));
  const file = join(folder.path, "some.test.mjs");
  writeFileSync(file, `import assert from "node:assert/strict";\nimport { test } from "node:test";\n${source}`);
  const env = { ...process.env };
  delete env["NODE_TEST_CONTEXT"]; // otherwise the child reports to this test's own runner
  return spawnSync(process.execPath, ["--test-reporter=spec", file], { encoding: "utf8", env }).stdout;
}

void test("a failed test file is followed by the name of the test and the assertion's message", () => {
  const why = whyOf(reportOf(`test("fine", () => {});\ntest("water boils", () => assert.ok(false, "the kettle is cold\\nplug it in"));`));
  assert.match(why.join("\n"), /✖ water boils[\s\S]*the kettle is cold\s+plug it in/);
  assert.doesNotMatch(why.join("\n"), /fine|node:internal/);
});

void test("the reason of a failure is cut in lines and in width", () => {
  const why = whyOf(reportOf(`test("many", () => assert.fail(Array.from({ length: 200 }, () => "x".repeat(5000)).join("\\n")));`));
  assert.equal(why.length, 30);
  assert.ok(why.every((line) => line.length <= 301));
});

void test("if an output names no failing test, its beginning and end are shown", () => {
  const why = whyOf(`${Array.from({ length: 100 }, (_, index) => `line ${index}`).join("\n")}\nthe file ended before its tests did\n`);
  assert.equal(why[0], "line 0");
  assert.equal(why.at(-1), "the file ended before its tests did");
  assert.equal(why.length, 30);
});
