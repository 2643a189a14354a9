// Every operation on a cold-tier device after a kill of each of the three processes, and a forced unregister interrupted at many moments.
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { type Server, startCluster } from "./cluster.ts";
import { addDevice, addOwner, read, ready } from "./cold.ts";
import { bytesOf as evictedBytesOf, keys as evictedKeys, MASTER, putAll as putTwiceItsMemory } from "./cold-evicted.ts";
import { coldKillsSuite } from "./cold-kills.suite.ts";
import { acts, betweenKills, cutShort } from "./cold-kills.ts";
import { inBucket, inFolder } from "./cold-storage.ts";
import { untilBack } from "./cold-troubles.ts";

const DELAYS_MS = [0, 50, 100, 200, 300, 450, 600, 900];

for (const { what, skip, open } of [inFolder, inBucket]) {
  void test(`in ${what} a device with the only copy of an object is not removed, whichever process is killed before each operation`, skip, async () => {
    await using storage = await open();
    await using cluster = await startCluster();
    const owner = await addOwner(cluster, "owner", storage);
    const kills = [cluster.admin, cluster.master, owner].flatMap((victim) => acts.map((act) => [victim, act] as const));
    await betweenKills(cluster, owner, storage, { kills });
  });

  void test(`in ${what} a forced unregister that a kill interrupts at any step leaves every object in memory or on the device`, skip, async () => {
    await using storage = await open();
    await using cluster = await startCluster();
    const owner = await addOwner(cluster, "owner", storage);
    const kills = [cluster.admin, cluster.master].flatMap((victim: Server) => DELAYS_MS.map((delayMs) => [victim, delayMs] as const));
    await cutShort(cluster, owner, storage, { kills });
  });

  void test(`no object is lost when the master is killed while objects move from memory to ${what}`, skip, async () => {
    await using storage = await open();
    await using cluster = await startCluster({ master: MASTER });
    const owner = await addOwner(cluster, "owner", storage, ["--store_service.cold_tier_offload=evict"]);
    await addDevice(cluster, "owner", "cold-1", storage);
    const putting = putTwiceItsMemory(owner);
    for (let kills = 0; kills < 4; kills++) {
      await new Promise((resolve) => setTimeout(resolve, 700));
      await cluster.master.kill();
      await cluster.master.start();
    }
    await putting;
    await ready(cluster, "cold-1");
    for (const key of evictedKeys) assert.equal(await until(`${key} is read`, () => read(owner, key), 50), evictedBytesOf(key));
  });
}

coldKillsSuite(inBucket);

void test("a device whose server is down, busy or silent recovers by itself, and meanwhile its objects are misses", inBucket.skip, () =>
  untilBack(["down", "busy", "hang"], true),
);
