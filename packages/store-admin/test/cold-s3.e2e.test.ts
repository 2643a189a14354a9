// Cases that only a bucket has: damaged objects, objects of several parts, and a failing server.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { StoreClient } from "@svc/store/client/store-client.ts";
import { startCluster } from "./cluster.ts";
import { addDevice, addOwner, look, offload, read, ready, restart } from "./cold.ts";
import { inBucket } from "./cold-storage.ts";
import { untilBack } from "./cold-troubles.ts";

const skip = needs("object-server");

void test("a flipped bit in the bucket is a miss with the reason checksum, and its file is quarantined; large objects arrive intact", skip, async () => {
  await using storage = await inBucket.open();
  await using cluster = await startCluster();
  const owner = await addOwner(cluster, "owner", storage);
  const large = "0123456789abcdef".repeat(2 ** 19 + 1);
  await cluster.put(owner, "large", large);
  await cluster.put(owner, "damaged", "a value of which a bit will flip");
  await addDevice(cluster, "owner", "cold-1", storage);
  assert.equal((await offload(cluster, "owner")).materialized, 2);
  const file = (await look(cluster, "objects/damaged")).cold_backing.locator.slice(-8);
  await restart(owner);
  await ready(cluster, "cold-1");
  assert.equal(await until("the large one is read", () => read(owner, "large"), 50), large);
  await storage.damage("cold-1", file, 10_000);
  await using client = await StoreClient.open({ master: cluster.rpc });
  assert.equal(await client.get("damaged"), undefined);
  assert.equal((await client.whyMissing("damaged"))?.reason, "checksum");
  const report = await until("the file is quarantined", async () => {
    const found = await look(cluster, "devices/cold-1/orphan-quarantine");
    return found.count === 1 ? found : undefined;
  });
  assert.equal(report.files[0].file_name.slice(0, 8), file);
  assert.equal((await storage.read(report.files[0].encoded_path)).length, report.files[0].size_bytes);
  assert.equal(String(await client.get("large")), large);
});

void test("a device whose server is busy fails with the reason, acknowledges nothing, and recovers by itself", skip, () => untilBack(["busy"]));
