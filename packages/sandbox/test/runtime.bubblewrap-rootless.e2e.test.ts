// The runtime suite on bubblewrap for a plain user: started again as one where the tests run as root.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chownSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { needs } from "@svc/harness/needs.ts";
import { runtimeSuite } from "./runtime.suite.ts";
import { isRoot } from "./runtime-fixture.ts";

/** An id that no account has: nothing on the host is its own. */
const PLAIN_ID = 64_321;
const CHILD_TIMEOUT_MS = 600_000;
const needed = needs("envd", "base", "bwrap", "unshare");

if (isRoot) {
  void test("bubblewrap runs sandboxes for a plain user, with the same suite", { ...needed, ...(needed.skip === false ? needs("setpriv") : {}) }, () => {
    const folder = mkdtempSync(join(tmpdir(), "svc-plain-"));
    chownSync(folder, PLAIN_ID, PLAIN_ID);
    try {
      const { NODE_TEST_CONTEXT: _, ...env } = process.env;
      const node = [process.execPath, "--disable-warning=ExperimentalWarning", "--test", "--test-reporter=tap", fileURLToPath(import.meta.url)];
      const child = spawnSync("setpriv", [`--reuid=${PLAIN_ID}`, `--regid=${PLAIN_ID}`, "--clear-groups", "--", ...node], {
        env: { ...env, HOME: folder, TMPDIR: folder },
        cwd: folder,
        encoding: "utf8",
        timeout: CHILD_TIMEOUT_MS,
        maxBuffer: 2 ** 26,
      });
      assert.equal(child.status, 0, `${child.stdout}\n${child.stderr}`);
      assert.match(child.stdout, /# pass \d{2}/, child.stdout);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
} else {
  runtimeSuite("bubblewrap", "bubblewrap without root", { limits: false, users: false, sudo: false }, needed);
}
