// The warnings of `svc nodes list` about nodes of one deployment that run different versions.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ShownNode } from "@svc/contract/nodes.ts";
import { differences } from "../src/servers/nodes.ts";

const node = (id: string, more: Partial<ShownNode> = {}) =>
  ({ id, version: "0.1.0", commit: "a".repeat(40), runsc: "runsc-1", schema: "3.2", ...more }) as ShownNode;

void test("nodes with another commit, runsc or schema are listed, and equal ones are not", () => {
  assert.deepEqual(differences([]), []);
  assert.deepEqual(differences([node("one"), node("two")]), []);
  assert.deepEqual(differences([node("one"), node("two", { commit: "" }), node("three", { runsc: "runsc-2", schema: "4.2" })]), [
    `warning: nodes differ in the commit that they run: ${"a".repeat(40)} on one, three; unknown on two`,
    "warning: nodes differ in the runsc that writes memory: runsc-1 on one, two; runsc-2 on three",
    "warning: nodes differ in the schema of their records: 3.2 on one, two; 4.2 on three",
  ]);
});

void test("a node that never answered does not count as a difference", () => {
  assert.deepEqual(differences([node("one"), node("two", { version: "", commit: "", runsc: "", schema: "" })]), []);
});
