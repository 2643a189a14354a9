// `svc bench [NAME…]`: runs all benches, or those named (NAME and each NAME-something), each a process; they print tables and write JSON.
// `--against COMMIT` runs NAME.pairs.ts instead: the native part of the working tree beside that of a commit.
import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { type HelpPage, renderHelp, usageOfPage } from "@svc/contract/help.ts";
import { MIN_PAIRS } from "./pairs.ts";

const directory = fileURLToPath(new URL(".", import.meta.url));
const SUFFIX = ".bench.ts";
const PAIRS_SUFFIX = ".pairs.ts";
const PAIRS = 20;
const help: HelpPage = {
  usage: ["svc bench [options] [NAME...]", "svc bench store|indexer --against COMMIT [--pairs N]"],
  about: "run the benchmarks, or those named: NAME and each NAME-something",
  options: [
    ["--against COMMIT", "build the native part of that commit, measure it and the working tree's in interleaved pairs, and print the ratios"],
    ["--pairs N", `the number of pairs (default ${PAIRS}, at least ${MIN_PAIRS})`],
  ],
  examples: ["svc bench indexer", "svc bench", "svc bench store --against HEAD~1"],
};

const namesOf = (suffix: string) =>
  readdirSync(directory)
    .filter((name) => name.endsWith(suffix))
    .map((name) => name.slice(0, -suffix.length))
    .sort();

type Words = { readonly names: readonly string[]; readonly against?: string | undefined; readonly pairs: string };

export async function main(argv: readonly string[]): Promise<number> {
  const all = namesOf(SUFFIX);
  if (argv.includes("--help") || argv.includes("-h")) {
    process.stdout.write(renderHelp({ ...help, more: `Benchmarks: ${all.join(", ")}. Results go to bench/results/NAME.json.` }));
    return 0;
  }
  const refuse = (why: string): number => {
    process.stderr.write(`svc bench: ${why}\n${usageOfPage(help, "svc bench --help")}`);
    return 2;
  };
  let words: Words;
  try {
    words = wordsOf(argv);
  } catch (error) {
    return refuse((error as Error).message);
  }
  const { names, against, pairs } = words;
  if (against !== undefined) {
    const paired = namesOf(PAIRS_SUFFIX);
    const other = names.find((name) => !paired.includes(name));
    if (names.length === 0 || other !== undefined) return refuse(`expected ${paired.join(" or ")} with --against, got ${other ?? "no name"}`);
    if (!(Number.isInteger(Number(pairs)) && Number(pairs) >= MIN_PAIRS))
      return refuse(`expected an integer of at least ${MIN_PAIRS} for --pairs, got "${pairs}"`);
    return runAll(names, PAIRS_SUFFIX, [against, pairs]);
  }
  const named = (name: string) => all.filter((each) => each === name || each.startsWith(`${name}-`));
  const unknown = names.filter((name) => named(name).length === 0);
  if (unknown.length > 0) return refuse(`there is no bench ${unknown.join(", ")}; there are ${all.join(", ")}`);
  return runAll(names.length === 0 ? all : names.flatMap(named), SUFFIX, []);
}

/** @throws for an option that does not exist. */
function wordsOf(argv: readonly string[]): Words {
  const options = { against: { type: "string" }, pairs: { type: "string", default: String(PAIRS) } } as const;
  const { values, positionals } = parseArgs({ args: [...argv], allowPositionals: true, options });
  return { names: positionals, ...values };
}

async function runAll(names: readonly string[], suffix: string, args: readonly string[]): Promise<number> {
  let worst = 0;
  for (const name of new Set(names)) {
    process.stdout.write(`\n# ${name}\n`);
    const { code, isStopped } = await run(`${directory}${name}${suffix}`, args);
    worst = Math.max(worst, code);
    if (isStopped) break;
  }
  return worst;
}

function run(file: string, args: readonly string[]): Promise<{ code: number; isStopped: boolean }> {
  const child = spawn(process.execPath, [file, ...args], { stdio: "inherit" });
  let isStopped = false;
  const passOn = (signal: NodeJS.Signals) => {
    isStopped = true;
    child.kill(signal);
  };
  process.on("SIGINT", passOn).on("SIGTERM", passOn);
  return new Promise((resolve) => {
    child.once("exit", (code) => {
      process.off("SIGINT", passOn).off("SIGTERM", passOn);
      resolve({ code: code ?? 1, isStopped });
    });
  });
}
