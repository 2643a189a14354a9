// Refused imports: a file that is not an export, one for another machine, damaged ones, invalid parts; and exports next to a running node.
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { machine } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { SetupTree } from "./setup-tree.ts";

const version = /^SVC_NODE_VERSION=(.*)$/m.exec(readFileSync(join(import.meta.dirname, "../setup/versions.sh"), "utf8"))?.[1];

type Export = { readonly head?: string; readonly arch?: string; readonly path?: string; readonly damage?: boolean };

/** Creates an export with one part: a Node that only prints its version. */
function layExport(tree: SetupTree, { head = "svc-export 1", arch = machine(), path = `node/${version}`, damage = false }: Export): string {
  const folder = join(tree.folder, "made");
  mkdirSync(join(folder, path, "bin"), { recursive: true });
  writeFileSync(join(folder, path, "bin/node"), `#!/bin/sh\necho v${version}\n`, { mode: 0o755 });
  execFileSync("tar", ["-cf", join(folder, "1.tar"), "-C", folder, "--", path]);
  const sum = createHash("sha256")
    .update(readFileSync(join(folder, "1.tar")))
    .digest("hex");
  writeFileSync(join(folder, "manifest"), `${head}\narch ${arch}\npart ${damage ? "0".repeat(64) : sum} ${path}\n`);
  const file = join(tree.folder, "an export.tar");
  execFileSync("tar", ["-cf", file, "-C", folder, "manifest", "1.tar"]);
  return file;
}

/** The import runs with an existing runsc, because this machine's Go would otherwise build one. */
const importInto = (tree: SetupTree, file: string) => tree.run(["setup", "--import", file], { PATH: tree.barePath(), SVC_RUNSC: tree.echoNode() });

void test("a part that this tree needs is imported, and its step finds it", async () => {
  using tree = new SetupTree();
  const { stderr } = await importInto(tree, layExport(tree, {}));
  assert.match(stderr, /import: 1 of 1 parts taken in/);
  assert.equal(readFileSync(join(tree.cache, `node/${version}/bin/node`), "utf8"), `#!/bin/sh\necho v${version}\n`);
  assert.doesNotMatch(stderr, /svc: node …/, "what came is not fetched again");
  assert.deepEqual(
    readdirSync(tree.cache).filter((name) => name.startsWith(".making")),
    [],
  );
});

void test("a part of another version is named and skipped", async () => {
  using tree = new SetupTree();
  const { stderr } = await importInto(tree, layExport(tree, { path: "node/1.2.3" }));
  assert.match(stderr, /node\/1\.2\.3 is not what this tree and machine use, and is left out/);
  assert.equal(existsSync(join(tree.cache, "node/1.2.3")), false);
});

void test("an incomplete export, or one for another kind of machine, is refused with the reason, and nothing is imported", async () => {
  const cases: readonly (readonly [Export, RegExp])[] = [
    [{ head: "svc-export 2" }, /not an export of svc, or one of a later version/],
    [{ arch: "vax" }, /was made on vax, and this machine is /],
    [{ damage: true }, /is damaged: its checksum is not that of the manifest/],
    [{ path: "bin/.." }, /does not belong in an export/],
    [{ path: "locks/native.lock" }, /does not belong in an export/],
  ];
  for (const [shape, says] of cases) {
    using tree = new SetupTree();
    const { code, stderr } = await importInto(tree, layExport(tree, shape));
    assert.equal(code, 1, stderr);
    assert.match(stderr, says);
    assert.match(stderr, /nothing was taken in/);
    assert.equal(existsSync(join(tree.cache, "node")), false);
  }
});

void test("a truncated file, and a missing one, are named", async () => {
  using tree = new SetupTree();
  const file = layExport(tree, {});
  writeFileSync(file, readFileSync(file).subarray(0, 700));
  const cut = await importInto(tree, file);
  assert.equal(cut.code, 1, cut.stderr);
  assert.match(cut.stderr, /is not a whole export/);
  const absent = await importInto(tree, join(tree.folder, "nowhere.tar"));
  assert.equal(absent.code, 2, absent.stderr);
  assert.match(absent.stderr, /nowhere\.tar is not there/);
});

void test("export and import require one file, and no other arguments", async () => {
  using tree = new SetupTree();
  for (const args of [["--export"], ["--import"], ["--import", "a", "--export"], ["--only", "node", "--import", "a"]]) {
    const { code, stderr } = await tree.run(["setup", ...args]);
    assert.equal(code, 2, stderr);
    assert.match(stderr, /asks for one FILE, and stands alone/);
  }
});

/** Exports a part with one file of 64 MB while a shell repeatedly does something to that file. */
async function exportBeside(tree: SetupTree, deed: string) {
  const part = join(tree.cache, `node/${version}`);
  for (const folder of [part, join(tree.cache, "logs")]) mkdirSync(folder, { recursive: true });
  writeFileSync(join(part, "program"), Buffer.alloc(64 << 20, 1));
  const other = spawn("sh", ["-c", `while :; do ${deed}; done`], { cwd: part, stdio: "ignore" });
  try {
    // The script runs the last stage of `setup --export`, with one step instead of all.
    const script = `source "$SVC_ROOT/setup/export.sh" "$0"`;
    const env = { ...process.env, SVC_ROOT: tree.tree, SVC_CACHE: tree.cache, run_steps: "node" };
    const { status: code, stderr } = spawnSync("bash", ["-euo", "pipefail", "-c", script, join(tree.folder, "export.tar")], { env, encoding: "utf8" });
    return { code, stderr };
  } finally {
    other.kill("SIGKILL");
    await once(other, "exit");
  }
}

void test("an export tolerates a node that links a program into its home meanwhile", async () => {
  using tree = new SetupTree();
  const { code, stderr } = await exportBeside(tree, "ln program ../link; rm ../link");
  assert.equal(code, 0, stderr);
  assert.match(stderr, /export: node\/[\d.]+, 6\d MB/);
  assert.doesNotMatch(stderr, /changed/);
});

void test("an export of a part that is modified meanwhile reports that and leaves no file", async () => {
  using tree = new SetupTree();
  const { code, stderr } = await exportBeside(tree, "date +%s.%N >>program");
  assert.equal(code, 1, stderr);
  assert.match(stderr, /export: node\/[\d.]+ changed or could not be read; run the command again/);
  assert.equal(existsSync(join(tree.folder, "export.tar")), false);
});
