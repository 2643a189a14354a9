// The parts of a test run: the checks, and one part per test file.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { type Ended, runChild } from "./child.ts";

export type Outcome = { passed: number; failed: number; skipped: number; output: string };
export type Part = { readonly name: string; readonly group: string; run(logs: string): Promise<Outcome> };

/** The limits prevent a hang; they are at least ten times what the longest part of each kind takes. */
const CHECK_LIMIT_MS = 10 * 60_000;
const FILE_LIMIT_MS = 10 * 60_000;
const LONG_FILE_LIMIT_MS = 110 * 60_000;

/** `pattern` picks tests by name, so the checks, which have no tests with names, are left out with it. */
export function allParts(root: string, { long, pattern }: { long: boolean; pattern?: string | undefined }): readonly Part[] {
  const files = testFiles(root).filter((file) => file.endsWith(".long.test.ts") === long);
  // Long kinds come first, so that no long part runs alone at the end.
  const order = (file: string) => (file.startsWith("test/") ? 0 : file.endsWith(".e2e.test.ts") ? 1 : 2);
  const fileParts = files.sort((a, b) => order(a) - order(b) || a.localeCompare(b)).map((file) => fileSuite(root, file, pattern));
  return long || pattern !== undefined ? fileParts : [...checks(root), ...fileParts];
}

function checks(root: string): readonly Part[] {
  const bin = (name: string) => join(root, "node_modules/.bin", name);
  return [
    check(root, "tsc", "checks", bin("tsc"), ["-p", "."]),
    check(root, "tsc packages/console", "checks", bin("tsc"), ["-p", "packages/console"]),
    check(root, "biome", "checks", bin("biome"), ["ci", "--colors=off", "--max-diagnostics=50", "."]),
    ...(existsSync(join(root, "packages/envd/go.mod")) ? [goPart(root, "vet"), goPart(root, "test")] : []),
  ];
}

function check(root: string, name: string, group: string, command: string, args: readonly string[]): Part {
  return {
    name,
    group,
    run: async () => asOne(await runChild(command, args, { cwd: root, limitMs: CHECK_LIMIT_MS })),
  };
}

function asOne(ended: Ended): Outcome {
  const passed = ended.code === 0;
  return { passed: passed ? 1 : 0, failed: passed ? 0 : 1, skipped: 0, output: ended.output };
}

function goPart(root: string, verb: "vet" | "test"): Part {
  return {
    name: `go ${verb} packages/envd`,
    group: "envd",
    async run() {
      const go = process.env["SVC_GO"];
      if (go === undefined) {
        const output = "skipped: missing on this host: a Go that is new enough; ./svc setup --only go installs one\n";
        return process.env["CI"] === "true" ? { passed: 0, failed: 1, skipped: 0, output } : { passed: 0, failed: 0, skipped: 1, output };
      }
      const cwd = join(root, "packages/envd");
      if (verb === "vet") return asOne(await runChild(go, ["vet", "./..."], { cwd, limitMs: CHECK_LIMIT_MS }));
      return goOutcome(await runChild(go, ["test", "-json", "./..."], { cwd, limitMs: CHECK_LIMIT_MS }));
    },
  };
}

type GoEvent = { Action?: string; Test?: string; Output?: string };

function goOutcome(ended: Ended): Outcome {
  const outcome: Outcome = { passed: 0, failed: 0, skipped: 0, output: "" };
  for (const line of ended.output.split("\n")) {
    let event: GoEvent;
    try {
      event = JSON.parse(line) as GoEvent;
    } catch {
      outcome.output += `${line}\n`;
      continue;
    }
    outcome.output += event.Output ?? "";
    if (event.Test === undefined) continue;
    if (event.Action === "pass") outcome.passed++;
    if (event.Action === "fail") outcome.failed++;
    if (event.Action === "skip") outcome.skipped++;
  }
  // A package that does not build fails without naming a test.
  if (ended.code !== 0 && outcome.failed === 0) outcome.failed = 1;
  return outcome;
}

function fileSuite(root: string, file: string, pattern: string | undefined): Part {
  return {
    name: file,
    group: groupOf(file),
    async run(logs) {
      const counts = join(logs, `${file.replaceAll("/", "-")}.json`);
      const reporter = (name: string, to: string) => [`--test-reporter=${name}`, `--test-reporter-destination=${to}`];
      const args = [
        "--disable-warning=ExperimentalWarning",
        ...reporter("spec", "stdout"),
        ...reporter(join(import.meta.dirname, "count-reporter.ts"), counts),
        ...(pattern === undefined ? [] : [`--test-name-pattern=${pattern}`]),
        file,
      ];
      const limitMs = file.endsWith(".long.test.ts") ? LONG_FILE_LIMIT_MS : FILE_LIMIT_MS;
      return fileOutcome(await runChild(process.execPath, args, { cwd: root, limitMs }), counts, pattern === undefined);
    },
  };
}

function fileOutcome(ended: Ended, countsFile: string, needsTests: boolean): Outcome {
  let counts = { passed: 0, failed: 0, skipped: 0 };
  let output = ended.output;
  try {
    counts = JSON.parse(readFileSync(countsFile, "utf8")) as typeof counts;
  } catch {
    output += "\nthe file ended before its tests did\n";
  }
  if (ended.code !== 0 && counts.failed === 0) {
    output += `\nthe process ended with ${ended.code}\n`;
    counts.failed = 1;
  }
  if (needsTests && counts.passed + counts.failed + counts.skipped === 0) {
    output += "\nthe file holds no test\n";
    counts.failed = 1;
  }
  return { ...counts, output };
}

function groupOf(file: string): string {
  const [first, second] = file.split("/");
  if (first === "packages") return second ?? "packages";
  return file.startsWith("test/setup") ? "setup" : "checks";
}

export function testFiles(root: string): string[] {
  const found: string[] = [];
  const packages = readdirSync(join(root, "packages"), { withFileTypes: true }).filter((entry) => entry.isDirectory());
  for (const folder of [join(root, "test"), ...packages.flatMap(({ name }) => ["src", "test"].map((sub) => join(root, "packages", name, sub)))]) {
    if (!existsSync(folder)) continue;
    for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
      const path = relative(root, join(entry.parentPath, entry.name));
      if (entry.isFile() && path.endsWith(".test.ts") && !dirname(path).includes("node_modules")) found.push(path);
    }
  }
  return found;
}
