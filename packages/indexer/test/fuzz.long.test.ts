// Runs fuzz.e2e.test.ts with more seeds and for longer.
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { fuzzNative } from "./fuzz.ts";

void test("damaged batches and bodies of any kind never cause an access outside their bytes", needs("g++"), async (context) => {
  const seeds = ["2", "3", String(Date.now())];
  context.diagnostic(`seeds ${seeds}`);
  await fuzzNative(60_000, seeds, true);
});
