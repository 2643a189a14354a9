// The disk of a leader's log is full while its standby has space: who says what, and what was acknowledged survives.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { startCluster } from "./ha-cluster.ts";

const MIB = 1024 * 1024;

void test(
  "a leader whose log is full refuses changes and says so, its standby says that it is well, and nothing acknowledged is lost",
  needs("root", "mount", "etcd"),
  async () => {
    const place = makeHome();
    const home = join(place, "home");
    mkdirSync(home);
    execFileSync("mount", ["-t", "tmpfs", "-o", `size=${6 * MIB}`, "tmpfs", home]);
    try {
      writeFileSync(join(home, "ballast"), Buffer.alloc(2 * MIB));
      await using cluster = await startCluster({
        masters: 2,
        flags: ["--client_ttl=600s", "--store.suspect_after_ms=600000"],
        flagsOf: (name) => (name === "ada" ? [`--home=${home}`] : []),
      });
      const leader = await cluster.inSync(1);
      assert.equal(leader.name, "ada");
      const standby = cluster.node("bob");
      const rpc = await leader.rpc();
      await rpc.call("MountSegment", segmentOf(1, 1n << 30n), clientID);
      const kept: string[] = [];
      let refused = 0;
      for (let at = 0; refused === 0 && at < 5000; at++) {
        const key = `${at}-${"k".repeat(4000)}`;
        const begun = await rpc.call("PutStart", clientID, key, 10n, plain, "");
        if (begun.ok && (await rpc.call("PutEnd", clientID, { key, checksum: undefined }, 4, "")).ok) kept.push(key);
        if (!begun.ok) refused = begun.code;
      }
      assert.equal(refused, -1503);
      const health = await leader.ask("/health");
      assert.equal(health.status, 503);
      assert.match(health.text, /disk of the log is full/);
      assert.match((await leader.ask("/metrics")).text, /^svc_store_log_full 1$/m);
      assert.match((await standby.ask("/metrics")).text, /^svc_store_log_full 0$/m);
      assert.equal((await leader.ha()).role, "leader");
      assert.equal((await standby.ha()).role, "standby");
      rmSync(join(home, "ballast"));
      await until("changes are taken again", async () => ((await leader.ask("/health")).status === 200 ? true : undefined));
      await cluster.inSync(1);
      await leader.kill();
      const next = await until("the standby leads", async () => ((await standby.ha()).state === "serving" ? standby : undefined));
      const again = await next.rpc();
      await again.call("MountSegment", segmentOf(1, 1n << 30n), clientID);
      const found = await again.call("BatchExistKey", kept, "");
      assert.ok(found.every((outcome) => outcome.ok && outcome.value));
    } finally {
      execFileSync("umount", ["-l", home]);
      removeHome(place);
    }
  },
);
