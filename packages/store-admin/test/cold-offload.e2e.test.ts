// Objects that move to a cold-tier device before they are evicted from memory, if the owner's settings say so.
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { startCluster } from "./cluster.ts";
import { addDevice, addOwner, look, read, ready, restart } from "./cold.ts";
import { backed, bytesOf, COUNT, keys, MASTER, putAll, VALUE_BYTES } from "./cold-evicted.ts";
import { inBucket, inFolder } from "./cold-storage.ts";

for (const { what, skip, open } of [inFolder, inBucket])
  void test(`objects that exceed the memory are in ${what} before they leave it, and intact after a kill of their owner`, skip, async () => {
    await using storage = await open();
    await using cluster = await startCluster({ master: MASTER });
    const owner = await addOwner(cluster, "owner", storage, ["--store_service.cold_tier_offload=evict"]);
    await addDevice(cluster, "owner", "cold-1", storage);
    await cluster.put(owner, "small", "stays in memory");
    assert.deepEqual(await storage.filesIn("cold-1"), []);
    await putAll(owner);
    for (const key of keys) assert.equal(await until(`${key} is read`, () => read(owner, key), 50), bytesOf(key));
    const { reclaimable_objects, blocked_objects } = await look(cluster, "devices/cold-1/blockers");
    assert.ok(blocked_objects - reclaimable_objects > COUNT / 3, "most of what memory had no room for is on the device alone");
    const cold = await backed(cluster);
    await restart(owner);
    await ready(cluster, "cold-1");
    for (const key of cold) assert.equal(await until(`${key} is read`, () => read(owner, key), 50), bytesOf(key));
    const { files } = await look(cluster, "devices/cold-1/orphan-quarantine");
    assert.deepEqual(files, []);
  });

void test("objects that exceed a device are evicted as without it, and puts continue", async () => {
  await using storage = await inFolder.open();
  await using cluster = await startCluster({ master: MASTER });
  const owner = await addOwner(cluster, "owner", storage, ["--store_service.cold_tier_offload=evict"]);
  await addDevice(cluster, "owner", "cold-1", storage, { capacity_override_bytes: 4 * VALUE_BYTES });
  await putAll(owner);
  const shown = await look(cluster, "devices/cold-1");
  assert.ok(shown.used_bytes > 0 && shown.used_bytes <= 4 * VALUE_BYTES, JSON.stringify(shown));
  for (const key of await backed(cluster)) assert.equal(await until(`${key} is read`, () => read(owner, key), 50), bytesOf(key));
});
