// The checks of wording: the texts that they read, and the faults that they find.
import assert from "node:assert/strict";
import { test } from "node:test";
import { commentsOf, proseOf, testNamesOf } from "./comments.ts";
import { faultOfComment, faultOfProse } from "./phrases.ts";

void test("a block of comment lines is read as one text, and a comment behind code as its own", () => {
  const source = [
    "// One sentence that goes",
    "// over two lines.",
    "const a = 1; // behind code",
    'const url = "http://host";',
    "/** A block",
    " * of two. */",
  ].join("\n");
  assert.deepEqual(commentsOf("a.ts", source), [
    { line: 1, text: "One sentence that goes over two lines." },
    { line: 3, text: "behind code" },
    { line: 5, text: "A block of two." },
  ]);
});

void test("comments of shell scripts are read, and a # within an expansion or a text is none", () => {
  const source = ["#!/bin/sh", "# A sentence.", `echo "a # b"`, "n=$" + "{#list}", "run # behind"].join("\n");
  assert.deepEqual(
    commentsOf("a.sh", source).map(({ text }) => text),
    ["A sentence.", "behind"],
  );
});

void test("a comment that begins without a subject is a fault, one with a subject is not", () => {
  for (const text of ["Of a record.", "What it holds.", "Whether it runs.", "One that waits.", "Nobody asks."])
    assert.match(faultOfComment(text) ?? "", /subject/);
  for (const text of ["The caller owns it.", "Offers a stream.", "Toggles it.", "One record per key."]) assert.equal(faultOfComment(text), undefined);
});

void test("words of the former dialect are a fault in prose, and free within backticks and code blocks", () => {
  assert.match(faultOfProse("It is set aside.") ?? "", /quarantined/);
  assert.equal(faultOfProse("The option `set aside` stays."), undefined);
  assert.deepEqual(
    proseOf("A line.\n```\nset aside\n```\nAnother.").map(({ text }) => text),
    ["A line.", "Another."],
  );
  assert.deepEqual(
    testNamesOf('void test("a name", () => {\n  await t.test(`another`, async () => {').map(({ text }) => text),
    ["a name", "another"],
  );
});
