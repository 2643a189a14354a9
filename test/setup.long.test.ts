// The whole set-up in a fresh Debian root: killed during it, resumed, checked with a real gVisor sandbox, uninstalled.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { FreshRoot } from "./fresh-root.ts";

const cache = "/var/cache/svc";

void test(
  "a fresh machine is set up by one command, also after a kill -9 half-way, and uninstalled without a trace",
  needs("root", "mmdebstrap", "unshare"),
  async (t) => {
    using fresh = new FreshRoot();
    const before = new Set(readdirSync(join(fresh.root, "opt/svc")));

    // At this point Go is installed, and runsc and the template are being built.
    const killed = await fresh.run(["/opt/svc/svc", "setup"], { killWhen: (output) => output.includes("runsc …") && output.includes("base …") });
    assert.equal(killed.code, "SIGKILL", killed.output);
    assert.equal(fresh.has(`${cache}/templates/base/rootfs/usr/bin/bash`), false);

    const resumed = await fresh.svc("setup");
    t.diagnostic(`killed after ${(killed.tookMs / 1000).toFixed(1)} s, resumed in ${(resumed.tookMs / 1000).toFixed(1)} s`);
    for (const line of resumed.output.split("\n").filter((text) => /^ {4}\S+ +[\d.]+ s/.test(text))) t.diagnostic(line);
    assert.equal(resumed.code, 0, resumed.output);
    assert.match(resumed.output, /where the time went/);
    assert.doesNotMatch(resumed.output, /^svc: node …/m, "what was whole before the kill is not made again");

    const again = await fresh.svc("setup");
    assert.equal(again.output.trim(), `svc: everything is in place in ${cache}`);
    const leftovers = await fresh.run(["find", cache, "-maxdepth", "3", "-name", ".making-*"]);
    assert.equal(leftovers.output, "");

    await t.test("what was installed runs", async () => {
      const node = await fresh.run([
        "bash",
        "-c",
        `PATH=$(echo ${cache}/node/*/bin):$PATH; node --version && npm --version && ${cache}/envd/*/envd --version && ${cache}/runsc/*/runsc --version`,
      ]);
      assert.equal(node.code, 0, node.output);
      assert.match(node.output, /v24\.19\.0\n11\./);
    });

    await t.test("a program runs in gVisor on the base template", async () => {
      const template = JSON.parse(fresh.read(`${cache}/templates/base/template.json`)) as { source: string; sizeBytes: number; durationMs: number };
      assert.match(template.source, /^(debian|ubuntu):/);
      t.diagnostic(`base: ${(template.sizeBytes / 1e6).toFixed(0)} MB in ${(template.durationMs / 1000).toFixed(1)} s`);
      const said = await fresh.runInGvisor("6*7");
      assert.equal(said.output.trim(), "42");
    });

    const removed = await fresh.svc("uninstall", "--yes", "--packages");
    assert.equal(removed.code, 0, removed.output);
    assert.deepEqual(
      [cache, "/var/lib/svc", "/opt/svc/node_modules", "/usr/bin/mmdebstrap", "/usr/sbin/policy-rc.d"].filter((path) => fresh.has(path)),
      [],
    );
    assert.deepEqual(
      readdirSync(join(fresh.root, "opt/svc")).filter((name) => !before.has(name)),
      [],
    );
  },
);
