// Every operation on a device of the cold tier after the kill of each of the three, and a forced unregister cut short at many moments.
import { test } from "node:test";
import { type Server, startCluster } from "./cluster.ts";
import { addOwner } from "./cold.ts";
import { coldKillsSuite } from "./cold-kills.suite.ts";
import { acts, betweenKills, cutShort } from "./cold-kills.ts";
import { inBucket, inFolder } from "./cold-places.ts";
import { untilBack } from "./cold-troubles.ts";

const DELAYS_MS = [0, 50, 100, 200, 300, 450, 600, 900];

for (const { what, skip, open } of [inFolder, inBucket]) {
  void test(`in ${what} a device whose objects lie nowhere else does not go, whoever is killed before each of the operations`, skip, async () => {
    await using place = await open();
    await using cluster = await startCluster();
    const owner = await addOwner(cluster, "owner", place);
    const kills = [cluster.admin, cluster.master, owner].flatMap((victim) => acts.map((act) => [victim, act] as const));
    await betweenKills(cluster, owner, place, { kills });
  });

  void test(`in ${what} a forced unregister that is cut short at any step by a kill leaves every object in memory or on the device`, skip, async () => {
    await using place = await open();
    await using cluster = await startCluster();
    const owner = await addOwner(cluster, "owner", place);
    const kills = [cluster.admin, cluster.master].flatMap((victim: Server) => DELAYS_MS.map((delayMs) => [victim, delayMs] as const));
    await cutShort(cluster, owner, place, { kills });
  });
}

coldKillsSuite(inBucket);

void test("a device whose server is down, busy or silent is back by itself, and meanwhile its objects are misses", inBucket.skip, () =>
  untilBack(["down", "busy", "hang"], true),
);
