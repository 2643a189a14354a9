// Sandboxes that are paused and resumed many times, with memory and with files alone.
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { fileRounds } from "./runtime-checkpoint.suite.ts";
import { memoryRounds } from "./runtime-memory.suite.ts";

for (const [name, program] of [
  ["gvisor", "runsc"],
  ["runc", "runc"],
] as const) {
  const it = (sentence: string, body: () => Promise<void>) => void test(`${name}: ${sentence}`, needs("root", "envd", "base", program, "ip"), body);
  fileRounds(name, "/opt", it, 20);
  if (name === "gvisor") memoryRounds(name, it, 20);
}
