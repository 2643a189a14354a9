// The commit that a tree is at, however it came to its machine.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { treeCommit } from "../src/commit.ts";

const folder = mkdtempSync(join(tmpdir(), "svc-commit-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const git = (root: string, ...args: string[]) =>
  execFileSync("git", ["-C", root, "-c", "user.name=a", "-c", "user.email=a@b", ...args], { encoding: "utf8" }).trim();

void test("a checkout, its worktree, packed branches, a detached head and a release each say their commit", () => {
  const tree = join(folder, "tree");
  mkdirSync(tree);
  git(tree, "init", "-q", "-b", "main");
  writeFileSync(join(tree, "COMMIT"), "$Format:%H$\n");
  writeFileSync(join(tree, ".gitattributes"), "COMMIT export-subst\n");
  assert.equal(treeCommit(tree), "", "before the first commit there is none");
  git(tree, "add", ".");
  git(tree, "commit", "-qm", "first");
  const commit = git(tree, "rev-parse", "HEAD");
  assert.equal(treeCommit(tree), commit);
  const worktree = join(folder, "worktree");
  git(tree, "worktree", "add", "-q", "-b", "side", worktree);
  assert.equal(treeCommit(worktree), commit);
  git(tree, "pack-refs", "--all");
  assert.deepEqual([treeCommit(tree), treeCommit(worktree)], [commit, commit]);
  git(tree, "checkout", "-q", "--detach");
  assert.equal(treeCommit(tree), commit);
  const release = join(folder, "release");
  mkdirSync(release);
  execFileSync("sh", ["-c", `git -C "$1" archive HEAD | tar -x -C "$2"`, "sh", tree, release]);
  assert.equal(treeCommit(release), commit);
  assert.equal(treeCommit(join(folder, "nothing")), "");
});

void test("this tree says its commit", () => {
  assert.match(treeCommit(), /^[0-9a-f]{40}$/);
});
