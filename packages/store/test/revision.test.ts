// The display version of master, service and client.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { displayVersion } from "../src/rpc/revision.ts";

const COMMIT = "0123456789abcdef0123456789abcdef01234567";

void test("the display version has the release and a short hash: of the commit in a clone, a worktree and with packed refs, else of the tree", () => {
  const root = mkdtempSync(join(tmpdir(), "svc-test-"));
  try {
    writeFileSync(join(root, "package.json"), JSON.stringify({ version: "1.2.3" }));
    const ofTree = displayVersion(root);
    assert.match(ofTree, /^svc 1\.2\.3 \([0-9a-f]{8}\)$/);
    assert.equal(displayVersion(root), ofTree);
    const git = join(root, ".git");
    mkdirSync(join(git, "refs/heads"), { recursive: true });
    writeFileSync(join(git, "HEAD"), "ref: refs/heads/main\n");
    writeFileSync(join(git, "packed-refs"), `# pack-refs\n${COMMIT} refs/heads/main\n`);
    assert.equal(displayVersion(root), "svc 1.2.3 (01234567)");
    writeFileSync(join(git, "refs/heads/main"), `f${COMMIT.slice(1)}\n`);
    assert.equal(displayVersion(root), "svc 1.2.3 (f1234567)");
    writeFileSync(join(git, "HEAD"), `${COMMIT}\n`);
    assert.equal(displayVersion(root), "svc 1.2.3 (01234567)");
    const tree = join(root, "worktree");
    const own = join(git, "worktrees/w");
    mkdirSync(own, { recursive: true });
    mkdirSync(tree);
    writeFileSync(join(tree, "package.json"), JSON.stringify({ version: "1.2.3" }));
    writeFileSync(join(tree, ".git"), `gitdir: ${own}\n`);
    writeFileSync(join(own, "HEAD"), "ref: refs/heads/main\n");
    writeFileSync(join(own, "commondir"), "../..\n");
    assert.equal(displayVersion(tree), "svc 1.2.3 (f1234567)");
  } finally {
    rmSync(root, { recursive: true });
  }
});

void test("the display version of a clone is that of its commit", (t) => {
  let commit: string;
  try {
    commit = execFileSync("git", ["rev-parse", "HEAD"], { cwd: import.meta.dirname, encoding: "utf8", stdio: "pipe" }).trim();
  } catch {
    t.skip("not a clone");
    return;
  }
  assert.ok(displayVersion().endsWith(`(${commit.slice(0, 8)})`), displayVersion());
});
