// Builds the core with its sanitizers as two units, which is far less work for the compiler than single files, and runs the fuzzer.
import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const native = fileURLToPath(new URL("../native/", import.meta.url));
const run = promisify(execFile);

/** `optimized` compiles for longer, and runs faster if there are many rounds. */
export async function fuzzNative(rounds: number, seeds: readonly string[], optimized: boolean): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "svc-fuzz-"));
  try {
    const program = join(folder, "fuzz_batch");
    const sources = readdirSync(join(native, "src")).filter((name) => name.endsWith(".cc") && name !== "addon.cc");
    const files = [
      ...sources.map((name) => join(native, "src", name)),
      ...["fuzz_batch.cc", "fuzz_memory.cc", "fuzz_table.cc"].map((name) => join(native, "fuzz", name)),
    ];
    const flags = ["-std=c++20", optimized ? "-O1" : "-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", `-I${native}src`];
    const objects = await Promise.all(
      [0, 1].map(async (half) => {
        const unit = join(folder, `unit-${half}`);
        const included = files.filter((_, i) => i % 2 === half).map((file) => `#include "${file}"\n`);
        writeFileSync(`${unit}.cc`, included.join(""));
        await run("g++", [...flags, "-c", `${unit}.cc`, "-o", `${unit}.o`]);
        return `${unit}.o`;
      }),
    );
    await run("g++", [...flags, ...objects, "-o", program]);
    for (const seed of seeds) await run(program, [String(rounds), seed]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
