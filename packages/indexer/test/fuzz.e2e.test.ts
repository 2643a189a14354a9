// The msgpack walk, the index and the JSON scan under AddressSanitizer and UndefinedBehaviorSanitizer.
import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { needs } from "@svc/harness/needs.ts";

const native = fileURLToPath(new URL("../native/", import.meta.url));
const run = promisify(execFile);

void test("damaged batches and bodies never reach outside their bytes, and the budget holds", needs("g++"), async () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-fuzz-"));
  try {
    const program = join(folder, "fuzz_batch");
    const sources = readdirSync(join(native, "src")).filter((name) => name.endsWith(".cc") && name !== "addon.cc");
    const flags = ["-std=c++20", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", `-I${native}src`];
    const objects = sources.map((name) => join(folder, name.replace(".cc", ".o")));
    for (const [i, name] of sources.entries()) await run("g++", [...flags, "-c", join(native, "src", name), "-o", objects[i] as string]);
    await run("g++", [...flags, join(native, "fuzz/fuzz_batch.cc"), ...objects, "-o", program]);
    for (const seed of ["1", "2", "3"]) await run(program, ["30000", seed]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
