// A metric that no server has would be shown as 0 for ever.
import { deepEqual } from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

const packages = `${import.meta.dirname}/../..`;

function textsOf(folder: string, ending: RegExp): string {
  const names = readdirSync(`${packages}/${folder}`, { recursive: true, encoding: "utf8" });
  return names
    .filter((name) => ending.test(name))
    .map((name) => readFileSync(`${packages}/${folder}/${name}`, "utf8"))
    .join("\n");
}

test("every metric that the console shows is one that a server has", () => {
  const shown = new Set(textsOf("console/src", /\.tsx?$/).match(/\bsvc_[a-z_]+[a-z]\b/g));
  const served = ["store", "indexer", "sandbox", "gateway", "router", "kit"].map((name) => textsOf(`${name}/src`, /\.ts$/)).join("\n");
  deepEqual(
    [...shown].filter((name) => !served.includes(name)),
    [],
  );
});
