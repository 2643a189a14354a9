// The runsc that set-up builds: its seccomp programs match its source, and two builds are identical.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

const root = join(import.meta.dirname, "..");
const BUILD_LIMIT_MS = 20 * 60_000;

function temporary(): { readonly folder: string } & Disposable {
  const folder = mkdtempSync(join(tmpdir(), "svc-test-"));
  return { folder, [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }) };
}

const hasEmulator = spawnSync("qemu-aarch64-static", ["--version"]).status === 0;
const native = process.arch === "arm64" ? "arm64" : "amd64";

for (const architecture of ["amd64", "arm64"] as const) {
  const skip =
    architecture !== native && (native !== "amd64" || !hasEmulator)
      ? "an emulator for the other architecture (Debian: qemu-user-static) is not installed"
      : false;
  void test(`the seccomp programs for ${architecture} in the tree match the pinned runsc's source`, { skip }, () => {
    using made = temporary();
    execFileSync(join(root, "setup/runsc/generate.sh"), [architecture, "--into", made.folder], { stdio: "pipe", timeout: BUILD_LIMIT_MS });
    const names = readdirSync(made.folder);
    assert.equal(names.length, 2);
    for (const name of names) {
      assert.equal(readFileSync(join(made.folder, name), "utf8"), readFileSync(join(root, "setup/runsc/programs", name), "utf8"), name);
    }
  });
}

void test("two builds of runsc in different folders are identical", () => {
  using made = temporary();
  const script =
    'source "$1/setup/paths.sh"; source "$1/setup/go.sh"; source "$1/setup/runsc/tune.sh"; use_go_to_build; fetch_runsc "$2/source"; tune_runsc "$2/source"; build_runsc "$2/source" "$2/runsc"';
  const sums = ["one", "another"].map((name) => {
    const folder = join(made.folder, name);
    execFileSync("mkdir", [folder]);
    execFileSync("bash", ["-euo", "pipefail", "-c", script, "bash", root, folder], {
      stdio: "pipe",
      timeout: BUILD_LIMIT_MS,
      env: { ...process.env, SVC_ROOT: root },
    });
    return execFileSync("sha256sum", [join(folder, "runsc")], { encoding: "utf8" }).split(" ")[0];
  });
  assert.equal(sums[0], sums[1]);
});
