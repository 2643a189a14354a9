// Retention rules: what they name, what they keep, and how a wrong rule is refused.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type Item, parseRule, selectedBy } from "../src/retention/rules.ts";

const HOUR = 3_600_000;
const NOW = 1_000 * HOUR;
const item = (id: string, ageHours: number, more: Partial<Item> = {}): Item => ({
  id,
  names: [],
  labels: {},
  atMs: NOW - ageHours * HOUR,
  sizeBytes: 10,
  neededBy: undefined,
  ...more,
});
const removed = (rules: readonly string[], items: readonly Item[]) => selectedBy(rules.map(parseRule), items, NOW).map(({ item: { id } }) => id);

void test("an age removes what is older, a number and a size keep the newest", () => {
  const items = [item("old", 50), item("new", 1), item("middle", 20)];
  assert.deepEqual(removed(["age=1d"], items), ["old"]);
  assert.deepEqual(removed(["count=1"], items), ["middle", "old"]);
  assert.deepEqual(removed(["bytes=25B"], items), ["old"]);
  assert.deepEqual(removed([], items), []);
  assert.deepEqual(removed(["count=2", "age=10h"], items), ["old", "middle"]);
});

void test("a rule is about items with all of its labels, and about named or unnamed ones", () => {
  const dev = { labels: { env: "dev", team: "a" } };
  const items = [item("1", 9, dev), item("2", 9, { ...dev, names: ["kept"] }), item("3", 9), item("4", 1, dev)];
  assert.deepEqual(removed(["age=5h label:env=dev"], items), ["1", "2"]);
  assert.deepEqual(removed(["age=5h label:env=dev unnamed"], items), ["1"]);
  assert.deepEqual(removed(["age=5h named"], items), ["2"]);
  assert.deepEqual(removed(["age=5h label:env=dev label:team=b"], items), []);
});

void test("what something needs is kept and counts, and groups are counted apart", () => {
  assert.deepEqual(removed(["count=1", "age=1s"], [item("needed", 9, { neededBy: "a tag" }), item("old", 10)]), ["old"]);
  assert.deepEqual(removed(["count=1"], [item("a1", 1, { group: "a" }), item("a2", 2, { group: "a" }), item("b1", 3, { group: "b" })]), ["a2"]);
});

void test("a wrong rule is refused with what was expected", () => {
  for (const text of ["", "age=", "age=5", "age=5y", "count=-1", "bytes=5", "age=1d count=5", "named unnamed age=1d", "label:x=y", "older"])
    assert.throws(() => parseRule(text), { name: "SETTING_INVALID", message: /expected age=30d .*; got "/ }, text);
});

void test("no rule ever removes the newest items within its limit, or anything that is needed", () => {
  const items = fc.uniqueArray(fc.record({ id: fc.string({ minLength: 1 }), ageHours: fc.integer({ min: 0, max: 99 }), isNeeded: fc.boolean() }), {
    selector: ({ id }) => id,
  });
  fc.assert(
    fc.property(items, fc.integer({ min: 0, max: 20 }), (all, count) => {
      const made = all.map(({ id, ageHours, isNeeded }) => item(id, ageHours, { neededBy: isNeeded ? "x" : undefined }));
      const gone = new Set(removed([`count=${count}`], made));
      const newestFirst = made.toSorted((a, b) => b.atMs - a.atMs || (a.id < b.id ? -1 : 1));
      for (const [at, each] of newestFirst.entries()) assert.equal(gone.has(each.id), at >= count && each.neededBy === undefined);
    }),
  );
});
