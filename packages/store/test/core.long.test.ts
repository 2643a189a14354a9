// The native core under the address and undefined-behaviour sanitizers: allocator, table, rules, log and frames against models.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { setPriority, tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { needs } from "@svc/harness/needs.ts";

// The build uses all cores, so it runs with low priority.
setPriority(10);

const NATIVE = fileURLToPath(new URL("../native", import.meta.url));
const BOUND_MS = 9 * 60_000;

function run(command: string, args: readonly string[]): Promise<{ code: number; output: string }> {
  const env = { ...process.env, ASAN_OPTIONS: "detect_leaks=1:halt_on_error=1", UBSAN_OPTIONS: "halt_on_error=1:print_stacktrace=1" };
  return new Promise((resolve) => {
    execFile(command, args, { env, timeout: BOUND_MS, maxBuffer: 1 << 26 }, (error, out, err) =>
      resolve({ code: error === null ? 0 : Number(error.code ?? 1), output: out + err }),
    );
  });
}

void test("the store's core keeps its rules on random operations, and the sanitizers find nothing", needs("cmake", "g++"), async () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-test-"));
  try {
    for (const step of [
      ["-S", NATIVE, "-B", folder, "-DBUILD_NODE=OFF", "-DCMAKE_BUILD_TYPE=Debug"],
      ["--build", folder, "--target", "core_test", "--parallel", "2"],
    ]) {
      const { code, output } = await run("cmake", step);
      assert.equal(code, 0, output.slice(-4000));
    }
    assert.match((await run("ldd", [join(folder, "core_test")])).output, /libasan/);
    const { code, output } = await run(join(folder, "core_test"), ["1"]);
    assert.equal(code, 0, output.slice(-4000));
    assert.match(output, /server holds/);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
