// Set-up and the first sandbox for an ordinary user of a fresh Debian, in a path with spaces, with only the commands that svc names.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { FreshRoot } from "./fresh-root.ts";

const tree = "/home/ann/my work/svc";
const asks = /As root: (apt-get install [^\n]+)/g;

void test("an ordinary user gets a sandbox by following the messages, in a path with spaces", needs("root", "mmdebstrap", "unshare"), async (t) => {
  using fresh = new FreshRoot();
  const made = await fresh.run(["bash", "-c", `useradd -m ann && mkdir -p "${join(tree, "..")}" && mv /opt/svc "${tree}" && chown -R ann: /home/ann`]);
  assert.equal(made.code, 0, made.output);
  const asAnn = (script: string) => fresh.run(["runuser", "-u", "ann", "--", "bash", "-c", `cd "${tree}"; ${script}`]);

  const first = await asAnn("./svc up");
  assert.equal(first.code, 1, first.output);
  assert.match(first.output, /neither pip nor npm .*; install python3-pip/);
  const commands = [...first.output.matchAll(asks)].map(([, command]) => `DEBIAN_FRONTEND=noninteractive ${command} --yes`);
  assert.equal(commands.length, 2, first.output);
  const installed = await fresh.run(["bash", "-c", ["apt-get update", ...commands].join(" && ")]);
  assert.equal(installed.code, 0, installed.output);

  // All commands run in one call, since background processes end with it.
  const used = await asAnn(`set -e
    ./svc up >up.log 2>&1 & up=$!
    for _ in $(seq 1200); do grep -q "API key" up.log && break; kill -0 $up || { cat up.log; exit 1; }; sleep 1; done
    id=$(./svc start)
    ./svc exec "$id" -- bash -lc 'echo mine >file; stat -c "%U owns its file" file; python3 -c "print(6 * 7)"'
    ./svc delete "$id"
    ./svc down; cat up.log`);
  assert.equal(used.code, 0, used.output);
  assert.match(used.output, /user owns its file\n42\n/);
  for (const line of used.output.split("\n").filter((text) => /^ {4}\S+ +[\d.]+ s/.test(text))) t.diagnostic(line);
});
