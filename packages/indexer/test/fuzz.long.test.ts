// The same as fuzz.e2e.test.ts, from more seeds and for longer.
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { fuzzNative } from "./fuzz.ts";

void test("damaged batches and bodies never reach outside their bytes, whatever they are", needs("g++"), async (context) => {
  const seeds = ["2", "3", String(Date.now())];
  context.diagnostic(`seeds ${seeds}`);
  await fuzzNative(60_000, seeds, true);
});
