// The runtime suite on bubblewrap for a plain user; if the tests run as root, it is started again as one.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chownSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { needs } from "@svc/harness/needs.ts";
import { runtimeSuite } from "./runtime.suite.ts";
import { isRoot, openFixture, run } from "./runtime-fixture.ts";

/** An id without an account, which owns no file on the host. */
const PLAIN_ID = 64_321;
const CHILD_TIMEOUT_MS = 600_000;
const needed = needs("envd", "base", "bwrap", "unshare");

/** The second test's account, which has a range of ids for a sandbox's users, and a template. */
const ACCOUNT = "svc-plain";
const OWN_TEMPLATE = "SVC_TEST_OWN_TEMPLATE";
const account = `set -e
for file in passwd group subuid subgid; do cp "/etc/$file" "$1/$file"; done
echo "${ACCOUNT}:x:${PLAIN_ID}:${PLAIN_ID}::$1:/bin/sh" >>"$1/passwd"
echo "${ACCOUNT}:x:${PLAIN_ID}:" >>"$1/group"
for file in subuid subgid; do echo "${ACCOUNT}:600000:65536" >>"$1/$file"; done
for file in passwd group subuid subgid; do [ -e "/etc/$file" ] || : >"/etc/$file"; mount --bind "$1/$file" "/etc/$file"; done
mkdir -p "$1/templates/base"
cp -a "$2/rootfs" "$2/template.json" "$1/templates/base/"
chown -hR ${PLAIN_ID}:${PLAIN_ID} "$1/templates"
shift 2
exec "$@"`;

/** Runs this file again as a plain user, in a temporary folder; `around` is prepended to the command. */
function runAsPlainUser(around: (folder: string) => readonly string[], more: Readonly<Record<string, string>> = {}): void {
  const folder = mkdtempSync(join(tmpdir(), "svc-plain-"));
  chownSync(folder, PLAIN_ID, PLAIN_ID);
  try {
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const node = [process.execPath, "--disable-warning=ExperimentalWarning", "--test", "--test-reporter=tap", fileURLToPath(import.meta.url)];
    const [command = "", ...args] = [...around(folder), "setpriv", `--reuid=${PLAIN_ID}`, `--regid=${PLAIN_ID}`, "--clear-groups", "--", ...node];
    const child = spawnSync(command, args, {
      env: { ...env, HOME: folder, TMPDIR: folder, ...Object.fromEntries(Object.entries(more).map(([name, value]) => [name, value.replace("$HOME", folder)])) },
      cwd: folder,
      encoding: "utf8",
      timeout: CHILD_TIMEOUT_MS,
      maxBuffer: 2 ** 26,
    });
    assert.equal(child.status, 0, `${child.stdout}\n${child.stderr}`);
    assert.match(child.stdout, /# pass [1-9]/, child.stdout);
    assert.match(child.stdout, /# skipped 0/, child.stdout);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const alsoNeeds = (...programs: Parameters<typeof needs>) => ({ ...needed, ...(needed.skip === false ? needs(...programs) : {}) });

if (isRoot) {
  void test("bubblewrap runs sandboxes for a plain user, with the same suite", alsoNeeds("setpriv"), () => runAsPlainUser(() => []));

  void test("in a plain user's own template, a sandbox's user may write to its home", alsoNeeds("setpriv", "newuidmap"), () =>
    runAsPlainUser((folder) => ["unshare", "--mount", "sh", "-c", account, "sh", folder, realpathSync(join(process.env["SVC_TEMPLATES_DIR"] ?? "", "base"))], {
      SVC_TEMPLATES_DIR: "$HOME/templates",
      [OWN_TEMPLATE]: "yes",
    }),
  );
} else if (process.env[OWN_TEMPLATE] === "yes") {
  void test("the user writes to its home", needed, async () => {
    await using fixture = await openFixture("bubblewrap");
    const handle = await fixture.start();
    const said = await run(handle, "id -un; echo mine >.profile && echo new >file && stat -c %U . file .profile", "user");
    assert.equal(said.stdout, "user\nuser\nuser\nuser\n", said.stderr);
    assert.equal((await run(handle, "stat -c %U /usr/bin /root")).stdout, "root\nroot\n");
  });
} else {
  runtimeSuite("bubblewrap", "bubblewrap without root", { limits: false, users: false, sudo: false }, needed);
}
