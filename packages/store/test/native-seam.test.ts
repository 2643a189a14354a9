// The seam between TypeScript and the native part: names decide which number means what, so a difference must stop the start.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { loadAddon } from "../src/rpc/native-addon.ts";
import { ARGUMENTS_FILE, argumentsText } from "../src/rpc/native-arguments.ts";
import { differenceOf, names } from "../src/rpc/native-names.ts";
import { startMaster } from "./master.ts";

const ADDON = process.env["SVC_STORE_NATIVE"] || fileURLToPath(new URL("../native/build/svc_store.node", import.meta.url));

void test("the native part has the same names as TypeScript, and a swapped or missing name in any list is reported", () => {
  const addon = loadAddon<{ names: Readonly<Record<string, readonly string[]>> }>();
  assert.equal(differenceOf(addon.names), undefined);
  for (const list of Object.keys(names) as (keyof typeof names)[]) {
    const [first = "", second = "", ...rest] = names[list];
    assert.equal(differenceOf({ ...addon.names, [list]: [second, first, ...rest] }), `entry 1 of ${list} is ${second} there and ${first} in TypeScript`);
    assert.match(differenceOf({ ...addon.names, [list]: names[list].slice(0, -1) }) ?? "", new RegExp(`of ${list} is missing there`));
    assert.equal(differenceOf({ ...addon.names, [list]: undefined }), `it does not say its ${list}`);
  }
});

void test("a master whose native part has its metrics in another order does not start, and names the one that differs", async () => {
  const folder = makeHome();
  try {
    const swapped = join(folder, "swapped.cjs");
    const [first = "", second = ""] = names.metrics;
    writeFileSync(
      swapped,
      `const addon = require(${JSON.stringify(ADDON)});
const [first, second, ...rest] = addon.names.metrics;
module.exports = { ...addon, names: { ...addon.names, metrics: [second, first, ...rest] } };
`,
    );
    const env = { SVC_STORE_NATIVE: swapped };
    await assert.rejects(startMaster({ env }), new RegExp(`${swapped}.*entry 1 of metrics is ${second} there and ${first} in TypeScript.*svc setup`));
  } finally {
    removeHome(folder);
  }
});

void test("the readers in C++ are those that are generated from the operations' declarations", () => {
  assert.equal(readFileSync(ARGUMENTS_FILE, "utf8"), argumentsText(), "run node packages/store/src/rpc/native-arguments.ts, and build again");
});
