// The arguments of `svc bench NAME --against COMMIT`, and when a ratio counts as a loss.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { medianInterval, orderOf, verdictOf } from "../bench/pairs.ts";

const MAIN = fileURLToPath(new URL("../bench/main.ts", import.meta.url));

function bench(...args: readonly string[]): { status: number | null; stderr: string } {
  const code = `import(${JSON.stringify(MAIN)}).then(async ({ main }) => { process.exitCode = await main(process.argv.slice(1)); })`;
  return spawnSync(process.execPath, ["-e", code, "--", ...args], { encoding: "utf8" });
}

void test("the interval of twenty pairs leaves five ratios out at each end, and of five pairs there is none", () => {
  const twenty = Array.from({ length: 20 }, (_, at) => (19 - at) / 10);
  assert.deepEqual(medianInterval(twenty), [0.5, 1.4]);
  assert.deepEqual(medianInterval([3, 1, 2, 6, 5, 4]), [1, 6]);
  assert.deepEqual(medianInterval([1, 1, 1, 1, 1]), [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY]);
});

void test("a loss above 5 % is one only when the whole interval shows it, and is excluded only by the whole interval", () => {
  assert.equal(verdictOf([0.951, 0.99]), "none");
  assert.equal(verdictOf([0.8, 0.949]), "loss");
  assert.equal(verdictOf([0.94, 1.2]), "open");
});

void test("each build is the first of its pair as often as the second", () => {
  const firsts = Array.from({ length: 20 }, (_, pair) => orderOf(pair)[0]);
  assert.equal(firsts.filter((side) => side === "old").length, 10);
});

void test("svc bench --against names the benches that it can pair, and the fewest pairs", () => {
  const cases: readonly (readonly [readonly string[], RegExp])[] = [
    [["setup", "--against", "HEAD"], /expected indexer or store with --against, got setup/],
    [["--against", "HEAD"], /expected indexer or store with --against, got no name/],
    [["store", "--against", "HEAD", "--pairs", "five"], /expected an integer of at least 6 for --pairs, got "five"/],
    [["store", "--against"], /--against/],
    [["store", "--compare", "HEAD"], /--compare/],
  ];
  for (const [args, says] of cases) {
    const { status, stderr } = bench(...args);
    assert.equal(status, 2, stderr);
    assert.match(stderr, says);
    assert.match(stderr, /Usage: svc bench/);
  }
});
