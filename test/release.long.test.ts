// The archive of a release on empty Debian roots, without a compiler, a registry or a network: unpacked, started, used, replaced, removed.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { needs } from "@svc/harness/needs.ts";
import { FreshRoot } from "./fresh-root.ts";

const run = promisify(execFile);
const root = join(import.meta.dirname, "..");
/** Ten times what packing should take. */
const PACK_MS = 20 * 60_000;
/** Half of an archive: the tree's own files come first in it, then what is prebuilt. */
const HALF = 2;

let folder = "";
let archive = "";
let sizeMB = 0;
const host = needs("root", "mmdebstrap", "unshare", "git");

before(async () => {
  if (host.skip !== false) return;
  folder = mkdtempSync(join(tmpdir(), "svc-release-"));
  const build = 'SVC_ROOT=$0; source "$SVC_ROOT/setup/paths.sh"; source "$SVC_ROOT/setup/release/archive.sh"; build_archive "$1" test';
  await run("bash", ["-euo", "pipefail", "-c", build, root, folder], { cwd: root, timeout: PACK_MS });
  archive = join(folder, readdirSync(folder)[0] ?? "");
  sizeMB = Number((await run("du", ["-m", archive])).stdout.split("\t")[0]);
});
after(() => rmSync(folder, { recursive: true, force: true }));

const use = `set -e
began=$(date +%s%N)
./svc up -d >/dev/null
id=$(./svc start base -d)
./svc exec "$id" -- python3 -c 'print(6*7)'
echo "first answer after $((($(date +%s%N) - began) / 1000000)) ms"
./svc version
./svc exec "$id" -- sh -c 'echo kept > /tmp/file; grep -c BEGIN /etc/ssl/certs/ca-certificates.crt'
./svc pause "$id" >/dev/null`;

/** Everything is killed and the folder is gone, as after an upgrade by somebody who does not wait. */
const upgrade = `set -e
rm -r /opt/svc
cd /opt/newer
./svc up -d >/dev/null
id=$(./svc list -q)
./svc resume "$id" >/dev/null
echo "after the upgrade: $(./svc exec "$id" -- cat /tmp/file)"
./svc delete "$id"
./svc down
./svc uninstall --yes >/dev/null
test ! -e /var/cache/svc && test ! -e /var/lib/svc
./svc up -d >/dev/null
id=$(./svc start base -d)
echo "after removal: $(./svc exec "$id" -- echo started)"
./svc delete "$id"
./svc down`;

for (const { suite, authorities, where } of [
  { suite: "bookworm", authorities: 0, where: "Debian 12" },
  { suite: "trixie", authorities: 1, where: "Debian 13 with an authority of its own" },
]) {
  void test(`the archive of a release runs on an empty ${where} without network, and a later one takes over its sandboxes`, host, async (t) => {
    using fresh = new FreshRoot(archive, suite);
    assert.deepEqual(
      ["/usr/bin/g++", "/usr/bin/npm", "/usr/local/go", "/usr/bin/python3"].filter((path) => fresh.has(path)),
      [],
    );
    const { stdout: certificate } = await run("openssl", [
      ...["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "/dev/null", "-subj", "/CN=site", "-days", "1"],
    ]);
    if (authorities > 0) fresh.write("/usr/local/share/ca-certificates/site.crt", certificate);
    const used = await fresh.run(["bash", "-c", `cd /opt/svc && ${use}`], { isOffline: true });
    assert.equal(used.code, 0, used.output);
    assert.match(used.output, /^42$/m);
    const trusted = Number(/^\d{3}$/m.exec(used.output)?.[0]);
    const [base = ""] = readdirSync(join(fresh.root, "opt/svc/prebuilt/templates"));
    const distribution = fresh.read(`/opt/svc/prebuilt/templates/${base}/rootfs/etc/ca-certificates.conf`).match(/^[^#!\n]/gm) ?? [];
    assert.equal(trusted, distribution.length + authorities, "sandboxes trust the distribution's authorities and the host's, and none of the build machine's");
    t.diagnostic(`note: ${where}: ${sizeMB} MB; ${/first answer after \d+ ms/.exec(used.output)?.[0]}`);

    fresh.unpack(archive, "/opt/newer");
    const upgraded = await fresh.run(["bash", "-c", upgrade], { isOffline: true });
    assert.equal(upgraded.code, 0, upgraded.output);
    assert.match(upgraded.output, /^after the upgrade: kept$/m);
    assert.match(upgraded.output, /^after removal: started$/m);
  });
}

void test("an archive whose unpacking was cut off is refused with a sentence, and works once it is unpacked again", host, async () => {
  const tree = join(folder, "cut");
  mkdirSync(tree);
  const half = join(folder, "half.tar.gz");
  copyFileSync(archive, half);
  await run("truncate", ["--size", String(Math.floor((sizeMB * 2 ** 20) / HALF)), half]);
  await run("tar", ["-xf", half, "-C", tree, "--strip-components=1"]).then(
    () => assert.fail("tar accepted half an archive"),
    () => undefined,
  );
  const env = { ...process.env, SVC_CACHE: join(folder, "cache"), SVC_HOME: join(folder, "home") };
  const said = await run(join(tree, "svc"), ["up", "-d"], { env }).then(
    () => "started",
    (error: { stderr: string }) => error.stderr,
  );
  assert.match(said, /was not unpacked completely into .*cut; see that its disk has space, and unpack it again/);
  await run("tar", ["-xf", archive, "-C", tree, "--strip-components=1"]);
  assert.match((await run(join(tree, "svc"), ["version"], { env })).stdout, /\d+\.\d+\.\d+/);
});
