// The disk of a leader's log is full while its standby has space: the standby leads, and what was acknowledged survives.
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
  "a leader whose log is full hands over to its standby, which takes changes, and nothing acknowledged is lost",
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
      // The end of the last put may be what the disk refuses; by the next one the leader may have given up the lead.
      assert.ok([-1503, -1010].includes(refused), `${refused}`);
      const next = await until("the standby leads", async () => ((await standby.ha()).state === "serving" ? standby : undefined));
      assert.match(leader.log(), /disk of the log is full: the lead goes to a standby in sync/);
      assert.match((await next.ask("/metrics")).text, /^svc_store_log_full 0$/m);
      const again = await next.rpc();
      await again.call("MountSegment", segmentOf(1, 1n << 30n), clientID);
      const found = await again.call("BatchExistKey", kept, "");
      assert.ok(found.every((outcome) => outcome.ok && outcome.value));
      assert.ok((await again.call("PutStart", clientID, "after the hand-over", 10n, plain, "")).ok);
      rmSync(join(home, "ballast"));
      await until("the former leader follows", async () => ((await next.ha()).in_sync.includes("ada") ? true : undefined));
    } finally {
      execFileSync("umount", ["-l", home]);
      removeHome(place);
    }
  },
);
