// The warnings of `svc nodes list` about nodes of one deployment that run different versions.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ShownNode } from "@svc/contract/nodes.ts";
import { differences } from "../src/servers/nodes.ts";

const node = (id: string, more: Partial<ShownNode> = {}) =>
  ({ id, version: "0.1.0", commit: "a".repeat(40), runsc: "runsc-1", schema: "3.2", cpuClass: "amd64-1", ...more }) as ShownNode;

void test("nodes with another commit, runsc or schema are listed, and equal ones are not", () => {
  assert.deepEqual(differences([]), []);
  assert.deepEqual(differences([node("one"), node("two")]), []);
  assert.deepEqual(differences([node("one"), node("two", { commit: "" }), node("three", { runsc: "runsc-2", schema: "4.2" })]), [
    `warning: nodes differ in the commit that they run: ${"a".repeat(40)} on one, three; unknown on two`,
    "warning: nodes differ in the runsc that writes memory: runsc-1 on one, two; runsc-2 on three",
    "warning: nodes differ in the schema of their records: 3.2 on one, two; 4.2 on three",
  ]);
});

void test("nodes with another class of processor are listed, and a wrong clock is listed before it makes its node unready", () => {
  assert.deepEqual(differences([node("one", { clockSkewMs: -999 }), node("two", { cpuClass: "amd64-2", clockSkewMs: -1_400 })]), [
    "warning: nodes differ in the class of their processors, and memory resumes on the same class alone: amd64-1 on one; amd64-2 on two",
    "warning: the clock of two is off by -1.4 s; beyond 2 s a node is not ready",
  ]);
});

void test("a node that never answered does not count as a difference", () => {
  assert.deepEqual(differences([node("one"), node("two", { version: "", commit: "", runsc: "", schema: "" })]), []);
});
