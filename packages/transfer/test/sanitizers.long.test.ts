// Longer, optimised runs of the stress program and the fuzz targets under each sanitizer; native.e2e.test.ts has a short round.
import assert from "node:assert/strict";
import { setPriority } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { needs, onPath } from "@svc/harness/needs.ts";
import { buildNative, run, SANITIZER_ENV } from "./cmake.ts";

// Builds and stress runs use every core, so they get a lower priority than other work.
setPriority(10);

const ROUNDS = "60";
const INPUTS = "200000";
const FUZZ_SECONDS = 20;

for (const [sanitizer, runtime] of [
  ["address", /libasan/],
  ["thread", /libtsan/],
  ["undefined", /libubsan/],
] as const) {
  void test(
    `the ${sanitizer} sanitizer finds nothing while threads transfer, register and stop, and while parsers are fuzzed`,
    needs("cmake", "g++"),
    async () => {
      await using build = await buildNative(`-DSANITIZE=${sanitizer}`);
      // Without this check, a build that lacks the sanitizer by mistake would pass.
      assert.match((await run("ldd", [join(build.folder, "stress")])).output, runtime);
      const stress = await run(join(build.folder, "stress"), [ROUNDS], SANITIZER_ENV);
      assert.equal(stress.code, 0, stress.output.slice(-8000));
      assert.match(stress.output, /every byte as it should be/);
      const fuzz = await run(join(build.folder, "fuzz"), [INPUTS], SANITIZER_ENV);
      assert.equal(fuzz.code, 0, fuzz.output.slice(-8000));
    },
  );
}

// Set-up does not install clang, because it is large and the fuzz program's own driver does not need it.
const clang = onPath("clang++") ? needs("cmake") : { skip: "missing on this host: clang++ with libFuzzer (Debian: clang, libclang-rt-dev)" };

void test("libFuzzer, guided by coverage, finds no input that breaks a parser", clang, async () => {
  await using build = await buildNative("-DCMAKE_CXX_COMPILER=clang++", "-DCMAKE_C_COMPILER=clang", "-DSANITIZE=address,undefined", "-DLIBFUZZER=ON");
  const { output } = await run(join(build.folder, "fuzz"), [`-runs=0`], { ...SANITIZER_ENV, FUZZ_TARGET: "list" });
  const targets = [...output.matchAll(/^target (\w+)$/gm)].map((found) => found[1] ?? "");
  assert.ok(targets.length >= 6, output);
  for (const target of targets) {
    const fuzz = await run(join(build.folder, "fuzz"), [`-max_total_time=${FUZZ_SECONDS}`, "-max_len=4096", "-timeout=10"], {
      ...SANITIZER_ENV,
      FUZZ_TARGET: target,
    });
    assert.equal(fuzz.code, 0, `${target}: ${fuzz.output.slice(-8000)}`);
    assert.match(fuzz.output, /Done \d+ runs/);
  }
});
