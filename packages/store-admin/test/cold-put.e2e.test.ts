// Objects that are copied to a cold-tier device after they were stored, if the owner's settings say so.
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { startCluster } from "./cluster.ts";
import { addOwner, ask, look, read } from "./cold.ts";
import { inFolder, makeFolder } from "./cold-storage.ts";

void test("objects reach a device soon after they are stored, including those stored before its registration, and none while it is disabled", async () => {
  await using folder = makeFolder();
  await using cluster = await startCluster();
  const owner = await cluster.addService("owner", ["--store_service.cold_tier_offload=put"]);
  await cluster.put(owner, "before", "a value");
  const target = { type: "directory", path: folder.path };
  const definition = { stable_id: "owner", cold_tier_id: "cold-1", kind: "ssd", target };
  assert.equal((await cluster.ask("POST", "/v1/cold-tier/devices", definition)).status, 201);
  await ask(cluster, "cold-1/register", {}, 201);
  const isBacked = async (key: string) => (await look(cluster, `objects/${key}`)).cold_backing?.state === "materialized" || undefined;
  await until("an object from before is there", () => isBacked("before"), 50);
  await cluster.put(owner, "after", "another value");
  await until("an object is there once it was stored", () => isBacked("after"), 50);
  await ask(cluster, "cold-1/disable");
  await cluster.put(owner, "disabled", "a third value");
  await ask(cluster, "cold-1/enable");
  await cluster.put(owner, "enabled", "a fourth value");
  await until("an object is there once the device was enabled", () => isBacked("enabled"), 50);
  await until("one from meanwhile too", () => isBacked("disabled"), 50);
});

void test("a tenant's device takes only that tenant's objects, also without a request", async () => {
  await using storage = await inFolder.open();
  await using cluster = await startCluster({ master: ["--enable_multi_tenants"] });
  for (const tenant of ["red", "blue"]) {
    const body = JSON.stringify({ requested_quota_bytes: 2 ** 20 });
    assert.equal((await fetch(`${cluster.master.url}/api/v1/tenant_quotas?tenant_id=${tenant}`, { method: "PUT", body })).status, 200);
  }
  const red = await addOwner(cluster, "red", storage, ["--tenant_id=red", "--store_service.cold_tier_offload=put"]);
  // This service has no memory, so its objects are stored in the other one's.
  const blue = await cluster.addService("blue", ["--tenant_id=blue", "--global_segment_size=0"]);
  const definition = { stable_id: "red", cold_tier_id: "cold-1", kind: storage.kind, target: storage.target };
  assert.equal((await cluster.ask("POST", "/v1/cold-tier/devices?tenant=red", definition)).status, 201);
  assert.equal((await cluster.ask("POST", "/v1/cold-tier/devices/cold-1/register?tenant=red", {})).status, 201);
  await cluster.put(blue, "key", "of blue");
  await cluster.put(red, "key", "of red");
  const stateOf = async (tenant: string) => (await look(cluster, `objects/key?tenant=${tenant}`)).cold_backing?.state;
  await until("red's is on the device", async () => (await stateOf("red")) === "materialized" || undefined, 50);
  assert.equal(await stateOf("blue"), undefined);
  assert.equal(await read(blue, "key"), "of blue");
});
