// The node's own name: if its file is damaged, a standalone node gets a new name, and a member of a deployment refuses to start.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { nodeIDOf } from "@svc/sandbox/cluster/node-id.ts";

void test("a standalone node replaces a damaged name and keeps the damaged file; a deployment's node refuses to start", () => {
  const home = makeHome();
  try {
    const first = nodeIDOf(home);
    assert.equal(nodeIDOf(home), first);
    writeFileSync(join(home, "node-id"), "\u0001 not a name");
    const second = nodeIDOf(home);
    assert.match(second, /^node-[0-9a-f]{12}$/);
    assert.equal(readFileSync(join(home, "node-id.damaged"), "utf8"), "\u0001 not a name");
    writeFileSync(join(home, "membership.json"), "{}");
    writeFileSync(join(home, "node-id"), "\u0001 not a name");
    assert.throws(() => nodeIDOf(home), /expected a-z, 0-9 and '-'/);
  } finally {
    removeHome(home);
  }
});
