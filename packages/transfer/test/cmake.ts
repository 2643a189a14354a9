// Builds the native library for a test, in its own folder.
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const NATIVE = fileURLToPath(new URL("../native", import.meta.url));

/** Kills a hanging program and shows its output, before the whole test file times out. */
const BOUND_MS = 15 * 60_000;

export function run(command: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<{ code: number; output: string }> {
  return new Promise((resolve) => {
    execFile(command, args, { env: { ...process.env, ...env }, maxBuffer: 1 << 28, timeout: BOUND_MS, killSignal: "SIGKILL" }, (error, out, err) =>
      resolve({ code: error === null ? 0 : Number(error.code ?? 1), output: out + err + (error?.killed ? `\nkilled after ${BOUND_MS} ms` : "") }),
    );
  });
}

/** Each finding must end the program with its report; by default some only print a line and exit with 0. */
export const SANITIZER_ENV = {
  ASAN_OPTIONS: "detect_leaks=1:halt_on_error=1:detect_stack_use_after_return=1",
  TSAN_OPTIONS: "halt_on_error=1:second_deadlock_stack=1",
  UBSAN_OPTIONS: "halt_on_error=1:print_stacktrace=1",
};

export type Build = AsyncDisposable & { readonly folder: string };

/** Builds the library, the stress program and the fuzz targets. */
export async function buildNative(...options: string[]): Promise<Build> {
  const folder = mkdtempSync(join(tmpdir(), "svc-test-"));
  const build = {
    folder,
    async [Symbol.asyncDispose]() {
      rmSync(folder, { recursive: true, force: true });
    },
  };
  const steps = [
    ["-S", NATIVE, "-B", folder, "-DBUILD_NODE=OFF", "-DBUILD_CHECKS=ON", ...options],
    ["--build", folder, "--parallel", String(availableParallelism())],
  ];
  for (const step of steps) {
    const { code, output } = await run("cmake", step);
    if (code === 0) continue;
    await build[Symbol.asyncDispose]();
    throw new Error(`cmake ${step.join(" ")} ended with ${code}:\n${output.slice(-4000)}`);
  }
  return build;
}
