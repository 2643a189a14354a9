// Keeps the documents short and true: invariants are cited and tested, decisions are linked, and each page has a bound.
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import { sourceFiles } from "./source-files.ts";

const root = join(import.meta.dirname, "..");
const read = (file: string) => readFileSync(join(root, file), "utf8");
const files = sourceFiles(root);
const KIB = 1024;
const bounds: Readonly<Record<string, number>> = { "ARCHITECTURE.md": 14 * KIB, "bench/README.md": 20 * KIB, "CHANGELOG.md": 6 * KIB, "README.md": 8 * KIB };

const invariants = [...read("ARCHITECTURE.md").matchAll(/^- \*\*(I\d+)\*\*/gm)].map(([, name]) => name ?? "");

void test("the documents keep within their bounds", () => {
  const long = Object.entries(bounds).flatMap(([file, bound]) => {
    const { size } = statSync(join(root, file));
    return size > bound ? [`${file}: ${size} bytes, the maximum is ${bound}`] : [];
  });
  assert.deepEqual(long, []);
});

void test("each invariant is cited by the code that keeps it", () => {
  const isTest = (file: string) => /\.(test|suite|bench)\.ts$|_test\.go$|\/test\/|^docs\//.test(file);
  const code = files.filter((file) => /\.(ts|go|cc|h|sh)$/.test(file) && (!isTest(file) || file.startsWith("test/"))).map(read);
  const cited = new Set(code.flatMap((text) => [...text.matchAll(/(?:\/\/|\*|#).*?\b(I\d+)\b.*/g)].flatMap(([line]) => line.match(/\bI\d+\b/g) ?? [])));
  assert.deepEqual(
    invariants.filter((name) => !cited.has(name)),
    [],
    "cite these where the code keeps them (// I3)",
  );
});

void test("each invariant has a test, and each named test exists", () => {
  const page = read("docs/invariants.md");
  const rows = [...page.matchAll(/^\| (I[^|]+) \| (.+) \|$/gm)];
  const shown = new Set(rows.flatMap(([, names = ""]) => names.split(",").map((name) => name.trim())));
  assert.deepEqual([...shown].sort(), [...invariants].sort(), "docs/invariants.md has a row for each invariant of ARCHITECTURE.md");
  const tests = new Set(files.filter((file) => /test|suite/.test(file)).map((file) => basename(file)));
  const named = rows.flatMap(([, , cell = ""]) => [...cell.matchAll(/`([^`]+)`/g)].map(([, name]) => name ?? ""));
  assert.deepEqual(
    named.filter((name) => !tests.has(name)),
    [],
    "these tests do not exist",
  );
});

void test("each decision is linked from the architecture, and no link of a document leads nowhere", () => {
  const architecture = read("ARCHITECTURE.md");
  const unlinked = readdirSync(join(root, "docs/decisions")).filter((name) => !architecture.includes(`docs/decisions/${name}`));
  assert.deepEqual(unlinked, [], "link these from ARCHITECTURE.md");
  const broken = files
    .filter((file) => file.endsWith(".md"))
    .flatMap((file) =>
      [...read(file).matchAll(/\]\((?!https?:|#|mailto:)([^)#\s]+)[^)]*\)/g)]
        .map(([, target]) => target ?? "")
        .filter((target) => !existsSync(join(root, file, "..", target)))
        .map((target) => `${file}: ${target}`),
    );
  assert.deepEqual(broken, []);
});
