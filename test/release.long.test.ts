// The archive of a release on an empty Debian root, without a compiler, a registry or a network: unpacked, started, used.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { needs } from "@svc/harness/needs.ts";
import { FreshRoot } from "./fresh-root.ts";

const run = promisify(execFile);
const root = join(import.meta.dirname, "..");
/** Ten times what packing should take. */
const PACK_MS = 20 * 60_000;

const use = `set -e
began=$(date +%s%N)
./svc up -d >/dev/null
id=$(./svc start base -d)
./svc exec "$id" -- python3 -c 'print(6*7)' || ./svc exec "$id" -- echo 42
echo "first answer after $((($(date +%s%N) - began) / 1000000)) ms"
./svc version
./svc delete "$id"
./svc down`;

void test(
  "the archive of a release runs a sandbox on an empty root without compiler, registry or network",
  needs("root", "mmdebstrap", "unshare", "git"),
  async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "svc-release-"));
    try {
      const build = 'SVC_ROOT=$0; source "$SVC_ROOT/setup/paths.sh"; source "$SVC_ROOT/setup/release/archive.sh"; build_archive "$1" test';
      await run("bash", ["-euo", "pipefail", "-c", build, root, folder], { cwd: root, timeout: PACK_MS });
      const [archive = ""] = readdirSync(folder);
      const { stdout: sizeMB } = await run("du", ["-m", join(folder, archive)]);
      using fresh = new FreshRoot(join(folder, archive));
      assert.deepEqual(
        ["/usr/bin/g++", "/usr/bin/npm", "/usr/local/go"].filter((path) => fresh.has(path)),
        [],
      );
      const used = await fresh.run(["bash", "-c", `cd /opt/svc && ${use}`], { isOffline: true });
      assert.equal(used.code, 0, used.output);
      assert.match(used.output, /^42$/m);
      t.diagnostic(`${sizeMB.split("\t")[0]} MB; ${/first answer after \d+ ms/.exec(used.output)?.[0]}`);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  },
);
