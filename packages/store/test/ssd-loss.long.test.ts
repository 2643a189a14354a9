// Hundreds of masters that die with their log while an owner stores objects on its disk.
import { test } from "node:test";
import { loseLogs } from "./ssd-loss.ts";

const ROUNDS = 100;

for (const [what, remembersBytes] of [
  ["alone", 0],
  ["next to memory", 64 << 20],
] as const)
  void test(`of ${ROUNDS} masters that die with their log, none loses an object that was complete in a file ${what}`, async (t) => {
    await loseLogs(ROUNDS, remembersBytes, (text) => t.diagnostic(text));
  });
