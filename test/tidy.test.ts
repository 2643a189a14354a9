// Checks the house rules: import directions, short files that open with a sentence, READMEs, wording.
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { commentsOf, type Passage, proseOf, testNamesOf } from "./comments.ts";
import { importsOf, mayImport, packageOf } from "./imports.ts";
import { machineWords } from "./machine-words.ts";
import { faultOfComment, faultOfProse, phraseIn, textsOf } from "./phrases.ts";
import { circlesOf, climbs, targetOf, undeclaredRooms } from "./rooms.ts";
import { sourceFiles } from "./source-files.ts";

const root = join(import.meta.dirname, "..");
const files = sourceFiles(root);
const read = (file: string) => readFileSync(join(root, file), "utf8");
/** Pressure to split; a file with its reason in the first lines ("Longer than 300 lines: …") may have more, up to the second bound. */
const MAX_LINES = 300;
const MAX_LINES_WITH_REASON = 450;
const REASON_LINES = 6;
const MAX_README_LINES = 60;
const typescript = files.filter((file) => file.endsWith(".ts"));
const code = files.filter((file) => /\.(ts|go|sh|awk|cc|cpp|h|hpp)$/.test(file) || file === "svc");
const generated = (file: string) => /_pb\.ts$|\.pb\.go$|connect\.go$/.test(file);

const isModule = (text: string) => /^(\.{1,2}|@svc)\/\S+\.ts$/.test(text);

/** Reports all faults in one failure. */
function none(wrong: readonly string[], rule: string): void {
  assert.equal(wrong.length, 0, `${rule}:\n  ${wrong.join("\n  ")}`);
}

void test("imports point one way: contract, kit, then the products; cli and console see contract alone", () => {
  const wrong = typescript.flatMap((file) =>
    importsOf(read(file))
      .filter((target) => !mayImport(file, target))
      .map((target) => `${file} imports ${target}`),
  );
  none(wrong, "these imports point the wrong way");
});

void test("a package imports another by name and lists it", () => {
  const wrong: string[] = [];
  for (const file of typescript) {
    const own = packageOf(file);
    if (own === undefined) continue;
    const listed = read(`packages/${own}/package.json`);
    for (const target of importsOf(read(file))) {
      const other = target.startsWith("@svc/") ? target.split("/")[1] : undefined;
      // npm links every workspace; listing the harness as a dependency would create a cycle.
      if (other !== undefined && other !== own && other !== "harness" && !listed.includes(`"@svc/${other}"`)) wrong.push(`${file} imports ${target}`);
      if (target.startsWith(".") && packageOf(join(file, "..", target)) !== own) wrong.push(`${file} reaches out of its package: ${target}`);
    }
  }
  none(wrong, "these imports lack a line in package.json, or go around it");
});

/** The imports of each file of the tree. */
const imported = new Map(typescript.map((file) => [file, importsOf(read(file)).flatMap((target) => targetOf(file, target) ?? [])] as const));

void test("a layer of a package imports only the layers below it, in the order that test/rooms.ts declares", () => {
  const wrong = [...imported].flatMap(([file, targets]) => targets.flatMap((target) => climbs(file, target)));
  none([...wrong, ...undeclaredRooms(typescript)], "rooms");
});

void test("no files import each other in a cycle", () => {
  const circles = circlesOf(imported).map((circle) => circle.join(" ⇄ "));
  none(circles, "these files import each other in a circle");
});

void test("help, errors, settings and guides use standard terms", () => {
  const inSource = typescript
    .filter((file) => /^packages\/(?!harness\/)[^/]+\/src\//.test(file))
    .flatMap((file) => textsOf(read(file)).map(({ line, text }) => ({ place: `${file}:${line}`, text })));
  const inGuides = files
    .filter((file) => /^docs\/.*\.md$|^config\/.*\.toml$|^(README|SECURITY)\.md$/.test(file))
    .flatMap((file) =>
      read(file)
        .split("\n")
        .map((text, index) => ({ place: `${file}:${index + 1}`, text })),
    );
  const wrong = [...inSource, ...inGuides].flatMap(({ place, text }) => {
    const phrase = phraseIn(text);
    return phrase === undefined || isModule(text) ? [] : [`${place}: ${phrase}: ${text.trim()}`];
  });
  none(wrong, "these sentences need other words");
});

/** Returns the faults in the wording of a file, one line each. */
function wordingOf(file: string): readonly string[] {
  const text = read(file);
  const faults = (passages: readonly Passage[], faultOf: (text: string) => string | undefined) =>
    passages.flatMap((passage) => {
      const fault = faultOf(passage.text);
      return fault === undefined ? [] : [`${file}:${passage.line}: ${fault}: ${passage.text.trim().slice(0, 160)}`];
    });
  if (file.endsWith(".md")) return faults(proseOf(text), faultOfProse);
  return [...faults(commentsOf(file, text), faultOfComment), ...(/\.(test|suite)\.ts$/.test(file) ? faults(testNamesOf(text), faultOfProse) : [])];
}

void test("comments, test names and papers are sentences in standard terms", () => {
  const checked = files.filter((file) => (code.includes(file) && !generated(file)) || /\.(md|tsx|c|py)$/.test(file));
  const wrong = checked.flatMap(wordingOf);
  none(wrong, "these sentences need other words");
});

void test("the commands of README and each guide are run by a test", () => {
  const tests = files.filter((file) => file.endsWith(".test.ts")).map(read);
  const untested = files
    .filter((file) => /^(docs\/.*|README)\.md$/.test(file) && /^```bash$/m.test(read(file)))
    .filter((file) => !read(file).includes("<!-- tested") && !tests.some((text) => text.includes(file)));
  assert.deepEqual(untested, []);
});

void test("the port of envd is spelled once", () => {
  const spelled = typescript.filter((file) => /^packages\/[^/]+\/src\/|^bench\//.test(file) && /\b49983\b/.test(read(file)));
  assert.deepEqual(spelled, ["packages/contract/src/envd-http.ts"]);
});

void test(`no source file is longer than ${MAX_LINES} lines, or than ${MAX_LINES_WITH_REASON} with a reason in its first lines`, () => {
  const wrong = code
    .filter((file) => !generated(file))
    .flatMap((file) => {
      const lines = read(file).trimEnd().split("\n");
      const hasReason = /longer than 300 lines: \w/i.test(lines.slice(0, REASON_LINES).join("\n"));
      return lines.length > (hasReason ? MAX_LINES_WITH_REASON : MAX_LINES) ? [`${file}: ${lines.length}`] : [];
    });
  none(wrong, "these files are too long");
});

void test("each source file opens with a sentence that says what it is", () => {
  const opens = (file: string) => {
    const lines = read(file)
      .replace(/^import (\([^)]*\)|"[^"]*")$/m, "")
      .split("\n")
      .filter((line) => !/^(#!|package \w+$|\/\/go:build|\/\/ @|#pragma once|\s*$)/.test(line));
    return /^(\/\/|#|\/\*\*?) ?\S.{15,}/.test(lines[0] ?? "");
  };
  none(
    code.filter((file) => !generated(file) && !opens(file)),
    "these files do not open with a comment",
  );
});

void test("each package has a README under a page", () => {
  const wrong: string[] = [];
  for (const entry of readdirSync(join(root, "packages"), { withFileTypes: true })) {
    if (!entry.isDirectory() || !files.some((file) => file.startsWith(`packages/${entry.name}/`))) continue;
    const readme = `packages/${entry.name}/README.md`;
    if (!existsSync(join(root, readme))) wrong.push(`${readme} is missing`);
    else if (read(readme).trimEnd().split("\n").length > MAX_README_LINES) wrong.push(`${readme} has more than ${MAX_README_LINES} lines`);
  }
  none(wrong, "READMEs");
});

void test("nothing is left to do in a comment", () => {
  // Spelled apart, so that this file does not find itself.
  const mark = new RegExp(`\\b(${["TO" + "DO", "FIX" + "ME", "XX" + "X"].join("|")})\\b`);
  const wrong = code.flatMap((file) =>
    read(file)
      .split("\n")
      .flatMap((line, index) => (mark.test(line) ? [`${file}:${index + 1}: ${line.trim()}`] : [])),
  );
  none(wrong, "finish these or take them out");
});

void test("no module has a default export, and no file a name that says nothing", () => {
  const reporter = "test/count-reporter.ts";
  const wrong = typescript.filter((file) => file !== reporter && /^export default /m.test(read(file)));
  const vague = files.filter((file) => /(^|\/)(utils?|helpers?|manager|types|misc|common)\.(ts|go|sh)$/.test(file));
  none([...wrong, ...vague], "default exports and vague names");
});

void test("no file names a machine's path or a package registry's host", () => {
  const words = machineWords(root);
  assert.ok(words.length > 0, "nothing of this machine was found to look for");
  const wrong = files.flatMap((file) => {
    const text = read(file);
    return words.filter((word) => text.includes(word)).map((word) => `${file}: ${word}`);
  });
  none(wrong, "these belong to a machine, not to the project");
});
