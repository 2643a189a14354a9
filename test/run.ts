// The test runner behind `./svc test`: runs checks and test files in parallel, prints a line for each, failures in full, and a total.
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { endChildren, runChild } from "./child.ts";
import { allParts, type Outcome, type Part } from "./parts.ts";
import { whyOf } from "./why.ts";

const root = join(import.meta.dirname, "..");
/** Killed tests of earlier runs leave a few sandboxes at most. */
const SWEEP_LIMIT_MS = 120_000;
/** More jobs than processors, because tests wait more than they compute. */
const JOBS = availableParallelism() + 1;
/** The number of runs whose logs are kept. */
const KEPT_RUNS = 10;

const help = `Usage: ./svc test [long] [NAME…] [--name PATTERN]
Runs the checks (types, lint, tidy, go vet, go test) and the test files, and ends with a line that counts them.
NAME picks by group (setup, checks, or a folder of packages/) or by a piece of the path.
long runs the *.long.test.ts files, which a plain ./svc test leaves out.
--name runs only the tests of the picked files whose name matches the regular expression PATTERN.
Example: ./svc test packages/cli --name 'exit code'
SVC_TEST_JOBS sets how many run side by side (${JOBS} here); logs are kept in ${process.env["SVC_TEST_LOGS"] ?? "the cache"}.`;

async function main(args: readonly string[]): Promise<number> {
  if (args.includes("-h") || args.includes("--help")) {
    console.log(help);
    return 0;
  }
  const { values, positionals } = readFlags(args);
  if (values === undefined) return 2;
  const all = allParts(root, { long: positionals.includes("long"), pattern: values.name });
  const names = positionals.filter((word) => word !== "long");
  // If one of several names matches nothing, it is probably a mistake.
  const stray = names.find((name) => !all.some((part) => fits(part, name)));
  if (stray !== undefined) {
    console.error(`svc: no test is named ${stray}; NAME is a group or a piece of a path, see ./svc test --help`);
    return 2;
  }
  const parts = names.length === 0 ? all : all.filter((part) => names.some((name) => fits(part, name)));
  const logs = makeLogs();
  const swept = await runChild(process.execPath, [join(root, "packages/harness/src/sweep.ts")], { cwd: root, limitMs: SWEEP_LIMIT_MS });
  if (swept.output !== "") process.stdout.write(swept.output);
  const totals = await runAll(parts, logs);
  console.log(`logs: ${logs}`);
  if (values.name !== undefined && totals.passed + totals.failed + totals.skipped === 0) {
    console.error(`svc: no test of the picked files has a name that matches ${values.name}`);
    return 1;
  }
  console.log(`${totals.passed} passed, ${totals.failed} failed${totals.skipped > 0 ? `, ${totals.skipped} skipped` : ""}`);
  return totals.failed === 0 ? 0 : 1;
}

/** The flags, or no values where one is unknown or lacks its pattern; the reason is printed then. */
function readFlags(words: readonly string[]): { values?: { name?: string }; positionals: readonly string[] } {
  try {
    return parseArgs({ args: [...words], options: { name: { type: "string" } }, allowPositionals: true });
  } catch (error) {
    console.error(`svc: test: ${(error as Error).message}; see ./svc test --help`);
    return { positionals: [] };
  }
}

function fits(part: Part, name: string): boolean {
  return part.group === name || part.name.includes(name.replace(/^\.\//, ""));
}

async function runAll(parts: readonly Part[], logs: string): Promise<Omit<Outcome, "output">> {
  const totals = { passed: 0, failed: 0, skipped: 0 };
  const waiting = [...parts];
  const jobs = Math.max(1, Number(process.env["SVC_TEST_JOBS"] ?? JOBS) || 1);
  const failures: string[] = [];
  async function work(): Promise<void> {
    for (let part = waiting.shift(); part !== undefined; part = waiting.shift()) {
      const started = performance.now();
      const outcome = await part.run(logs);
      totals.passed += outcome.passed;
      totals.failed += outcome.failed;
      totals.skipped += outcome.skipped;
      writeFileSync(join(logs, `${part.name.replaceAll("/", "-").replaceAll(" ", "-")}.log`), outcome.output);
      console.log(line(part.name, outcome, performance.now() - started));
      if (outcome.failed > 0) for (const reason of whyOf(outcome.output)) console.log(`       ${reason}`);
      for (const note of notes(outcome.output)) console.log(`       ${note}`);
      if (outcome.failed > 0) failures.push(`\n──── ${part.name}\n${outcome.output.trimEnd()}`);
      else if (outcome.skipped > 0) for (const reason of reasons(outcome.output)) console.log(`       skipped: ${reason}`);
    }
  }
  await Promise.all(Array.from({ length: jobs }, work));
  for (const failure of failures) console.log(failure);
  return totals;
}

function line(name: string, outcome: Outcome, tookMs: number): string {
  const counts = [`${outcome.passed} passed`];
  if (outcome.failed > 0) counts.push(`${outcome.failed} failed`);
  if (outcome.skipped > 0) counts.push(`${outcome.skipped} skipped`);
  return `${outcome.failed > 0 ? "FAIL" : "ok  "}   ${name.padEnd(58)} ${(tookMs / 1000).toFixed(1).padStart(6)} s   ${counts.join(", ")}`;
}

/** Returns the distinct reasons of skipped tests and checks. */
function reasons(output: string): readonly string[] {
  return [...new Set([...output.matchAll(/(?:# |skipped: )(missing [^\n]*)/g)].map((found) => found[1] ?? ""))];
}

/** A test may leave a note for people: a diagnostic that begins with "note:". */
function notes(output: string): readonly string[] {
  return [...output.matchAll(/^\s*ℹ note: (.*)$/gm)].map((found) => found[1] ?? "");
}

function makeLogs(): string {
  const all = process.env["SVC_TEST_LOGS"] ?? join(root, ".svc", "test-logs");
  mkdirSync(all, { recursive: true });
  const old = readdirSync(all)
    .sort()
    .reverse()
    .slice(KEPT_RUNS - 1);
  // Logs of a run in progress are kept.
  const isOver = (name: string) => !existsSync(`/proc/${name.slice(name.lastIndexOf("-") + 1)}`);
  for (const name of old.filter(isOver)) rmSync(join(all, name), { recursive: true, force: true });
  const logs = join(all, `${new Date().toISOString().replaceAll(":", "-")}-${process.pid}`);
  mkdirSync(logs);
  return logs;
}

for (const [signal, code] of [
  ["SIGINT", 130],
  ["SIGTERM", 143],
  ["SIGHUP", 129],
] as const) {
  process.once(signal, () => {
    endChildren();
    process.exit(code);
  });
}
process.exitCode = await main(process.argv.slice(2));
