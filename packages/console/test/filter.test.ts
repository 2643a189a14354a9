// The filter of the list of sandboxes: a run's link finds exactly that run, whatever its metadata contain.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ConsoleRow } from "@svc/contract/console.ts";
import fc from "fast-check";
import { filterFor, matcher } from "../src/rows.ts";

const rowWith = (metadata: Readonly<Record<string, string>>): ConsoleRow => ({
  id: "i1",
  template: "base",
  state: "running",
  startedAt: 0,
  endAt: 0,
  cpu: 1,
  memoryMB: 1,
  diskMB: 1,
  metadata,
  depth: 0,
});
const finds = (text: string, metadata: Readonly<Record<string, string>>) => matcher({ text, state: "" })(rowWith(metadata));

void test("NAME=VALUE is a whole value, NAME=VALUE* its beginning, and words are found anywhere", () => {
  assert.ok(finds("exp=1", { exp: "1" }));
  assert.ok(!finds("exp=1", { exp: "10" }) && !finds("exp=1", { lr: "exp=1" }));
  assert.ok(finds("exp=1*", { exp: "10" }) && !finds("exp=1*", { exp: "21" }));
  assert.ok(finds("exp=", { exp: "10" }) && !finds("exp=", { run: "10" }));
  assert.ok(finds('cfg="lr=1 bs=2" base', { cfg: "lr=1 bs=2" }) && !finds('cfg="lr=1 bs=2"', { cfg: "lr=1 bs=20" }));
  assert.ok(finds("even", { run: "Evening" }) && !finds("even odd", { run: "Evening" }));
});

void test("the link of a run finds its sandboxes and no others, for any metadata", () => {
  const text = fc.string({ minLength: 1, maxLength: 12, unit: "grapheme" }).filter((each) => each.toLowerCase().toUpperCase() === each.toUpperCase());
  fc.assert(
    fc.property(text, text, text, (name, value, other) => {
      assert.ok(finds(filterFor(name, value), { [name]: value }));
      if (other.toLowerCase() !== value.toLowerCase()) assert.ok(!finds(filterFor(name, value), { [name]: other }));
    }),
    { numRuns: 2_000 },
  );
});
