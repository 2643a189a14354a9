// The recipes of templates: each can be built as it is written, and what svc has no recipe for says what to use instead.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { openContext } from "../src/build-context.ts";
import { checkMemory, type Recipe, recipeFolder, recipePlan, recipes, whyNotOffered } from "../src/recipes.ts";

/** Returns the scripts of a recipe: files that begin with `#!`. */
function scriptsOf(recipe: Recipe): { path: string; shell: string }[] {
  const files = readdirSync(recipeFolder(recipe), { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return files.flatMap((entry) => {
    const path = join(entry.parentPath, entry.name);
    const shell = /^#!(\S+)/.exec(readFileSync(path, "utf8"))?.[1];
    return shell === undefined ? [] : [{ path, shell }];
  });
}

for (const recipe of recipes) {
  void test(`the recipe of ${recipe.name} has all files that it copies, starts from base, and has a start and a ready command`, async () => {
    const plan = await recipePlan(recipe);
    assert.equal(plan.fromImage, "base");
    assert.ok(plan.startCmd !== undefined && recipe.readyCmd !== "");
    assert.deepEqual(plan.notes, []);
    const context = await openContext(recipeFolder(recipe));
    const copied = plan.steps.filter(({ type }) => type === "COPY");
    for (const { args } of copied) assert.match(await context.hash(args[0] ?? ""), /^[0-9a-f]{64}$/, args[0]);
    assert.ok(copied.length > 0);
  });

  void test(`the shell scripts of ${recipe.name} are valid`, () => {
    for (const { path, shell } of scriptsOf(recipe)) {
      assert.equal(shell, "/bin/sh", path);
      execFileSync("sh", ["-n", path]);
    }
  });
}

void test("desktop and browser have the names that E2B's SDKs and agents ask for, and names and words are unique", () => {
  const names = recipes.map(({ name }) => name);
  assert.ok(names.includes("desktop") && names.includes("browser") && names.includes("code-interpreter-v1"));
  assert.equal(new Set([...names, ...recipes.map(({ word }) => word)]).size, new Set(names).size + 1, "only the interpreter's word differs from its name");
});

void test("Chromium starts with the same flags and policies in both templates", () => {
  for (const file of ["chromium-flags", "policies.json"]) {
    const [desktop, browser] = ["desktop", "browser"].map((word) => {
      const recipe = recipes.find((each) => each.word === word);
      assert.ok(recipe !== undefined);
      return readFileSync(join(recipeFolder(recipe), file), "utf8");
    });
    assert.equal(desktop, browser, file);
  }
});

void test("mcp-gateway is not offered, which says why and what to use instead; other names may be any template's", () => {
  assert.match(whyNotOffered("mcp-gateway") ?? "", /template 'mcp-gateway' is not offered: .*catalogue of container images.*use `svc mcp`/);
  for (const name of ["base", "desktop", "toString", ""]) assert.equal(whyNotOffered(name), undefined, name);
});

void test("a node that gives sandboxes too little memory for a recipe says how much it needs", () => {
  const desktop = recipes.find(({ word }) => word === "desktop");
  assert.ok(desktop !== undefined);
  assert.throws(() => checkMemory(desktop, 512), {
    name: "INVALID_REQUEST",
    message: /needs 2048 MB of memory, .* 512; raise sandbox\.memory_mb or set it to 0/,
  });
  for (const memoryMB of [0, 2048, 4096]) checkMemory(desktop, memoryMB);
});
