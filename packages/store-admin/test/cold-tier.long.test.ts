// Every operation on a device of the cold tier after the kill of each of the three, and a forced unregister cut short at many moments.
import { test } from "node:test";
import { type Server, startCluster } from "./cluster.ts";
import { makeFolder } from "./cold.ts";
import { acts, betweenKills, cutShort } from "./cold-kills.ts";

const DELAYS_MS = [0, 50, 100, 200, 300, 450, 600, 900];

void test("a device whose objects lie nowhere else does not go, whoever is killed before each of the operations", async () => {
  await using folder = makeFolder();
  await using cluster = await startCluster();
  const owner = await cluster.addService("owner");
  const kills = [cluster.admin, cluster.master, owner].flatMap((victim) => acts.map((act) => [victim, act] as const));
  await betweenKills(cluster, owner, folder.path, { kills });
});

void test("a forced unregister that is cut short at any step by a kill leaves every object in memory or on the device", async () => {
  await using folder = makeFolder();
  await using cluster = await startCluster();
  const owner = await cluster.addService("owner");
  const kills = [cluster.admin, cluster.master].flatMap((victim: Server) => DELAYS_MS.map((delayMs) => [victim, delayMs] as const));
  await cutShort(cluster, owner, folder.path, { kills });
});
