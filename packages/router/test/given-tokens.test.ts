// Token ids in a request: taken as they are, and only where all of them are ids.
import assert from "node:assert/strict";
import { test } from "node:test";
import { givenTokens, readPrompt } from "../src/prompt.ts";

const read = (prompt: string) => givenTokens(readPrompt("completion", Buffer.from(`{"model":"m","prompt":${prompt}}`), undefined));

void test("a prompt of token ids is read as it stands, up to the largest id of 32 bits", () => {
  assert.deepEqual(read("[0, 1, 4294967295]"), Uint32Array.of(0, 1, 4_294_967_295));
  assert.deepEqual(read("[[7, 8], [9]]"), Uint32Array.of(7, 8), "the first of several prompts counts");
});

void test("a list with anything that is not a token id is not taken for token ids", () => {
  for (const prompt of ["[]", "[1, -1]", "[1, 4294967296]", "[1, 1.5]", '[1, "2"]', "[1, null]", "[1, true]", "[1, [2]]", "[1e400]", '["text"]', '"text"'])
    assert.equal(read(prompt), undefined, prompt);
});
