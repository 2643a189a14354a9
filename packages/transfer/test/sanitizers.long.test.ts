// The stress program and the fuzz targets under the address, thread and undefined-behaviour sanitizers.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { buildNative, run } from "./cmake.ts";

for (const sanitizer of ["address", "thread", "undefined"]) {
  void test(
    `the ${sanitizer} sanitizer finds nothing while threads transfer, register and stop, and while parsers are fuzzed`,
    needs("cmake", "g++"),
    async () => {
      await using build = await buildNative(`-DSANITIZE=${sanitizer}`);
      const env = { UBSAN_OPTIONS: "halt_on_error=1:print_stacktrace=1", TSAN_OPTIONS: "halt_on_error=1", ASAN_OPTIONS: "detect_leaks=1" };
      const stress = await run(join(build.folder, "stress"), ["20"], env);
      assert.equal(stress.code, 0, stress.output.slice(-8000));
      assert.doesNotMatch(stress.output, /runtime error|WARNING: ThreadSanitizer/);
      const fuzz = await run(join(build.folder, "fuzz"), ["50000"], env);
      assert.equal(fuzz.code, 0, fuzz.output.slice(-8000));
    },
  );
}
