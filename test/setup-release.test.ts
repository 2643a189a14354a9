// `./svc release --check`: what a release needs before anything is built, and what releases.json says of the releases before.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { SetupTree } from "./setup-tree.ts";

const root = join(import.meta.dirname, "..");
const host = needs("git");

void test("a release is refused, with what to do, until its tree, branch, changelog and version are right", host, async () => {
  using tree = new SetupTree();
  const write = (file: string, text: string) => writeFileSync(join(tree.tree, file), text);
  const git = (...args: string[]) => execFileSync("git", ["-C", tree.tree, "-c", "user.name=a", "-c", "user.email=a@b", ...args], { encoding: "utf8" }).trim();
  const commit = () => {
    git("add", "-A");
    git("commit", "-qm", "change");
  };
  const check = async () => await tree.run(["release", "--check"]);
  const refused = async (says: RegExp) => {
    const { code, stderr } = await check();
    assert.equal(code, 1, stderr);
    assert.match(stderr, says);
  };
  write("package.json", '{\n  "name": "svc",\n  "version": "1.2.3",\n  "private": true\n}\n');
  await refused(/is not a git checkout; release from a clone/);
  git("init", "-q", "-b", "main");
  write("CHANGELOG.md", "# Changelog\n\n## 1.2.3 (unreleased)\n");
  write("releases.json", '{ "releases": [] }\n');
  commit();
  await refused(/expected the first section of CHANGELOG\.md to be "## 1\.2\.3 \(YYYY-MM-DD\)", got "## 1\.2\.3 \(unreleased\)"/);
  write("CHANGELOG.md", "# Changelog\n\n## 1.2.3 (2026-11-27)\n");
  await refused(/has changes that are not committed; commit them first/);
  git("checkout", "-qb", "side");
  commit();
  await refused(/commit [0-9a-f]{12} is not on main; a release is cut from a commit that has landed there/);
  git("checkout", "-q", "main");
  git("merge", "-q", "side");
  const right = await check();
  assert.equal(right.code, 0, right.stderr);
  assert.match(right.stderr, new RegExp(`1\\.2\\.3 may be built from commit ${git("rev-parse", "HEAD").slice(0, 12)}`));
  write("releases.json", `{ "releases": [{ "version": "1.2.3", "commit": "${git("rev-parse", "HEAD")}" }] }\n`);
  commit();
  await refused(/has a release 1\.2\.3 already; raise the version in package\.json/);
});

void test("each release in releases.json is a commit of this history, and has its dated section in the changelog", host, (t) => {
  const { releases } = JSON.parse(readFileSync(join(root, "releases.json"), "utf8")) as { releases: { version: string; commit: string; date: string }[] };
  const changelog = readFileSync(join(root, "CHANGELOG.md"), "utf8");
  for (const { version, commit, date } of releases) {
    assert.ok(changelog.includes(`\n## ${version} (${date})\n`), `CHANGELOG.md has a section "## ${version} (${date})"`);
    const isShallow = spawnSync("git", ["-C", root, "rev-parse", "--is-shallow-repository"], { encoding: "utf8" }).stdout.trim() !== "false";
    if (isShallow) return t.skip("this is a shallow clone, or no clone");
    assert.equal(spawnSync("git", ["-C", root, "merge-base", "--is-ancestor", commit, "HEAD"]).status, 0, `${commit} of release ${version} is in this history`);
  }
});
