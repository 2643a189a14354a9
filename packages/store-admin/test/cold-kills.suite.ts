// The guarantees of the cold tier while admin server, master and owner are killed, with devices in folders or buckets.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Server, startCluster } from "./cluster.ts";
import { addDevice, addOwner, DEVICES, offload, ready } from "./cold.ts";
import { acts, betweenKills, COUNT, cutShort, putAll, readAll } from "./cold-kills.ts";
import type { OpenStorage } from "./cold-storage.ts";

export function coldKillsSuite({ what, skip, open }: OpenStorage): void {
  void describe(`kills beside devices in ${what}`, skip, () => {
    void test("a device with the only copy of an object is not removed, whichever process is killed between the operations", async () => {
      await using storage = await open();
      await using cluster = await startCluster();
      const owner = await addOwner(cluster, "owner", storage);
      const victims = [cluster.admin, cluster.master, owner];
      await betweenKills(cluster, owner, storage, { kills: acts.map((act, at) => [victims[at % victims.length] as Server, act]) });
    });

    void test("a forced unregister that a kill interrupts leaves every object in memory or on the device", async () => {
      await using storage = await open();
      await using cluster = await startCluster();
      const owner = await addOwner(cluster, "owner", storage);
      await cutShort(cluster, owner, storage, {
        kills: [
          [cluster.admin, 100],
          [cluster.master, 300],
        ],
      });
    });

    void test("an owner that is killed during a forced unregister serves the remaining objects, and its device stays", async () => {
      await using storage = await open();
      await using cluster = await startCluster();
      const owner = await addOwner(cluster, "owner", storage);
      await putAll(cluster, owner);
      await addDevice(cluster, "owner", "cold-1", storage);
      await offload(cluster, "owner");
      await owner.kill();
      assert.equal((await cluster.ask("POST", `${DEVICES}/cold-1/unregister`, { force: true })).status >= 400, true);
      await owner.start();
      await ready(cluster, "cold-1");
      const refused = await cluster.ask("POST", `${DEVICES}/cold-1/unregister`, { force: true });
      assert.equal(refused.status, 409, JSON.stringify(refused.body));
      assert.equal((await storage.filesIn("cold-1")).length, COUNT);
      await readAll(owner);
    });
  });
}
