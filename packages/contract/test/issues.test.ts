// The messages that people read when a schema refuses an input.
import assert from "node:assert/strict";
import { test } from "node:test";
import { issueText } from "@svc/contract/issues.ts";
import { z } from "zod";

const schema = z.strictObject({
  count: z.coerce.number().int().min(1).max(5).optional(),
  ratio: z.number().gt(0).lt(1).optional(),
  name: z.string().min(2).max(4).optional(),
  list: z.array(z.boolean()).max(1).optional(),
  kind: z.enum(["a", "b"]).optional(),
  id: z.uuid().optional(),
  own: z
    .string()
    .refine((text) => text === "x", "own: only x will do")
    .optional(),
  inner: z.object({ deep: z.string() }).optional(),
});

const cases: [unknown, string][] = [
  [{ count: "abc" }, 'count: expected a number, got "abc"'],
  [{ count: 0 }, "count: expected at least 1, got 0"],
  [{ count: 1000 }, "count: expected at most 5, got 1000"],
  [{ count: "1000" }, "count: expected at most 5, got 1000"],
  [{ count: 1.5 }, "count: expected a whole number, got 1.5"],
  [{ ratio: 1 }, "ratio: expected less than 1, got 1"],
  [{ ratio: "1" }, 'ratio: expected a number, got "1"'],
  [{ name: "a" }, "name: expected at least 2 characters, got 1"],
  [{ name: null }, "name: expected text, got null"],
  [{ list: [1] }, "list.0: expected true or false, got 1"],
  [{ list: [true, true] }, "list: expected at most 1 entries, got 2"],
  [{ list: {} }, "list: expected a list, got an object"],
  [{ kind: "c" }, 'kind: expected "a" or "b", got "c"'],
  [{ id: "7" }, 'id: expected a UUID, got "7"'],
  [{ own: "y" }, "own: only x will do"],
  [{ inner: {} }, "inner.deep: expected text, got nothing"],
  [{ more: 1 }, 'expected no member "more"'],
  [7, "expected an object, got 7"],
];

void test("a refused input is reported with the member, what was expected and what was given", () => {
  for (const [input, text] of cases) {
    const { error } = schema.safeParse(input);
    assert.equal(error === undefined ? "taken" : issueText(error, input), text);
  }
});

void test("no schema shows its validator's own messages", () => {
  const given: unknown[] = [undefined, null, 0, -1, 1e9, Number.NaN, "", "x".repeat(1000), [], [1, 2, 3], {}, { a: 1 }, true, 1n];
  const schemas = [z.string().min(1).max(3), z.number().int().min(1).max(2), z.bigint().max(0n), z.array(z.string()).min(1), z.boolean(), z.literal("a")];
  const more = [
    z.enum(["a"]),
    z.union([z.string().max(2), z.number().max(2)]),
    z.url(),
    z.record(z.string().max(0), z.number()),
    z.number().multipleOf(2),
    z.strictObject({}),
  ];
  for (const each of [...schemas, ...more])
    for (const input of given) {
      const { error } = each.safeParse(input);
      if (error !== undefined) assert.doesNotMatch(issueText(error, input), /Invalid|Too (small|big)|received|Unrecognized/);
    }
});
