// An export of one machine, imported by a fresh one that reaches no registry and no mirror.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { FreshRoot } from "./fresh-root.ts";

const root = join(import.meta.dirname, "..");

void test("a fresh machine without a network runs its first gVisor sandbox from an export", needs("root", "mmdebstrap", "unshare"), async (t) => {
  using fresh = new FreshRoot();
  const file = join(fresh.root, "opt/export.tar");
  execFileSync(join(root, "svc"), ["setup", "--export", file], { stdio: ["ignore", "ignore", "pipe"] });
  t.diagnostic(`the export: ${(statSync(file).size / 1e6).toFixed(0)} MB`);
  // A resolver that does not exist makes every download fail.
  fresh.write("/etc/resolv.conf", "nameserver 127.0.0.1\n");
  await fresh.run(["bash", "-c", "rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* /var/lib/apt/lists/*"]);
  const env = { http_proxy: "http://127.0.0.1:9", https_proxy: "http://127.0.0.1:9", GOPROXY: "off", NPM_CONFIG_OFFLINE: "true" };

  const imported = await fresh.run(["/opt/svc/svc", "setup", "--import", "/opt/export.tar"], { env });
  assert.equal(imported.code, 0, imported.output);
  const first = await fresh.runInGvisor("6*7");
  assert.equal(first.output.trim(), "42");
  t.diagnostic(`import ${(imported.tookMs / 1000).toFixed(1)} s, the first sandbox ${(first.tookMs / 1000).toFixed(1)} s`);
  for (const line of imported.output.split("\n").filter((text) => /^ {4}\S+ +[\d.]+ s/.test(text))) t.diagnostic(line);

  const listed = await fresh.run(["/opt/svc/svc", "--help"], { env });
  assert.equal(listed.code, 0, listed.output);
});
