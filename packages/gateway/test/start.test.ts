// A gateway refuses to start without what it needs, each time with a sentence that says what to do.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";

const MAIN = fileURLToPath(new URL("../src/main.ts", import.meta.url));
const home = mkdtempSync(join(tmpdir(), "svc-gateway-"));
after(() => rmSync(home, { recursive: true, force: true }));

function run(flags: readonly string[], env: Record<string, string> = {}) {
  const given = ["--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", `--home=${home}`, ...flags];
  return spawnSync(process.execPath, [MAIN, ...given], { encoding: "utf8", env: { PATH: process.env["PATH"], ...env } });
}

void test("a gateway without an API key does not start, and generates none", () => {
  const { status, stderr } = run(["--nodes=http://127.0.0.1:9"]);
  assert.equal(status, 1);
  assert.match(stderr, /there is no API key: give the deployment's by SVC_API_KEY or in \/run\/secrets\/api-key; a gateway generates none/);
});

void test("a gateway without nodes, with a bad one, a short key or a node's home does not start", () => {
  const SVC_API_KEY = "k".repeat(40);
  assert.match(run([], { SVC_API_KEY }).stderr, /settings gateway\.nodes and cluster\.etcd are both empty/);
  assert.match(run(["--nodes=http://127.0.0.1:9", "--etcd=http://127.0.0.1:9"], { SVC_API_KEY }).stderr, /are both given: expected one of them/);
  assert.match(run(["--nodes=127.0.0.1:8000"], { SVC_API_KEY }).stderr, /setting gateway\.nodes .* expected http:\/\/HOST:PORT/);
  assert.match(run(["--nodes=http://127.0.0.1:9"], { SVC_API_KEY: "short" }).stderr, /has 5 characters; expected 32 to 256/);
  writeFileSync(join(home, "sandboxes.db"), "");
  assert.match(run(["--nodes=http://127.0.0.1:9"], { SVC_API_KEY }).stderr, /is a node's home: give the gateway its own with --home DIR/);
});
