// docs/transfer-engine.md: the compiler accepts its TypeScript, which does what the guide says, and the guide is complete.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { TransferEngine } from "../src/engine.ts";
import { openGuide, ROOT } from "./guide.ts";

void test("the TypeScript quick start of the guide compiles under the strict rules of this tree", async () => {
  using guide = openGuide();
  writeFileSync(join(guide.folder, "guide.tsconfig.json"), JSON.stringify({ extends: "./tsconfig.json", include: ["receive.ts", "send.ts"] }));
  await guide.run(`${ROOT}/node_modules/.bin/tsc -p guide.tsconfig.json`);
});

void test("the TypeScript quick start of the guide runs unchanged", async () => {
  using guide = openGuide();
  const commands = guide.commands.find((block) => block.includes("send.ts"));
  assert.ok(commands !== undefined);
  assert.match(await guide.run(commands), /^shm: .*\n(.*\n)*send\.ts: hello from TypeScript$/m);
});

void test("the guide names every call, setting, error number and metric", () => {
  const guide = readFileSync(`${ROOT}/docs/transfer-engine.md`, "utf8");
  const source = (file: string) => readFileSync(`${ROOT}/packages/transfer/native/${file}`, "utf8");
  const all = (text: string, pattern: RegExp) => [...text.matchAll(pattern)].map(([, found = ""]) => found);
  const calls: string[] = [];
  for (let at: object = TransferEngine.prototype; at !== Object.prototype; at = Object.getPrototypeOf(at) as object)
    calls.push(...Object.getOwnPropertyNames(at));
  const settings = all(source("src/options.cc"), /^ {4}\{"(\w+)", &Options::/gm);
  const errors = all(source("include/svc/transfer_engine.h"), /ERR_\w+ = (-\d+)/g);
  const metrics = all(source("src/metrics.cc"), /"(svc_transfer_\w+)"/g);
  assert.ok(calls.length > 30 && settings.length > 15 && errors.length > 10 && metrics.length > 10);
  // `transferSync` and similar forms share a row with their first form.
  const named = (word: string) => new RegExp(`(?<![\\w-])${word.replace(/Sync$/, "")}(?!\\w)`).test(guide);
  assert.deepEqual(
    [...calls, ...settings, ...errors, ...metrics].filter((word) => word !== "constructor" && !named(word)),
    [],
  );
});
