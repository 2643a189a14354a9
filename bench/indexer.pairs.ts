// The indexer's core beside that of a commit: both run the bench of the core that they were built with, one right after the other.
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildNative } from "./native-build.ts";
import { type Better, orderOf, Pairs, type Side } from "./pairs.ts";
import { progress } from "./report.ts";

/** A quarter of the chains of `bench indexer`, so that a pair takes seconds; each has 512 blocks. */
const CHAINS = process.env["SVC_BENCH_CHAINS"] ?? "1000";
const CORE = process.env["SVC_INDEXER_CORE_BENCH"] ?? fileURLToPath(new URL("../packages/indexer/native/build/core_bench", import.meta.url));

const [commit = "", pairs = ""] = process.argv.slice(2);
const found = new Pairs();
const built = await buildNative("indexer", commit, "core_bench");
const programs: Readonly<Record<Side, string>> = { old: join(built.folder, "core_bench"), new: CORE };

/** The unit and the direction of a figure, which its name tells. */
function kindOf(name: string): readonly [string, Better] {
  if (name.endsWith("_per_second")) return ["/s", "higher"];
  return [/_(us|ms|bytes)_/.exec(`${name}_`)?.[1] ?? "", "lower"];
}

for (let pair = 0; pair < Number(pairs); pair++) {
  progress(`pair ${pair + 1} of ${pairs}`);
  for (const side of orderOf(pair)) {
    const { blocks: _, ...figures } = JSON.parse(execFileSync(programs[side], [CHAINS], { encoding: "utf8" })) as Record<string, number>;
    for (const [name, value] of Object.entries(figures)) found.add(name.replaceAll("_", " "), ...kindOf(name), side, value);
  }
}
process.exitCode = found.report("indexer", built.commit);
