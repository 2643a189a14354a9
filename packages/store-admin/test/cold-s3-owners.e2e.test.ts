// Ownership of a device in a bucket: independent owners that share the bucket, and what their settings and credentials permit.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { startCluster } from "./cluster.ts";
import { addDevice, addOwner, ask, DEVICES, look, offload, ready } from "./cold.ts";
import { COUNT, keys, putAll } from "./cold-kills.ts";
import { inBucket } from "./cold-storage.ts";

const skip = needs("object-server");

void test("a bucket's device has one owner: another service is refused while the owner lives, and gets all objects once it is released", skip, async () => {
  await using storage = await inBucket.open();
  await using cluster = await startCluster();
  const owner = await addOwner(cluster, "owner", storage);
  await putAll(cluster, owner);
  await addDevice(cluster, "owner", "cold-1", storage);
  await offload(cluster, "owner");
  await using elsewhere = await startCluster();
  await addOwner(elsewhere, "stranger", storage);
  const definition = { stable_id: "stranger", cold_tier_id: "cold-1", kind: "s3", target: storage.target };
  assert.equal((await elsewhere.ask("POST", DEVICES, definition)).status, 201);
  assert.match((await ask(elsewhere, "cold-1/register", {}, 409)).error, /is served by owner/);
  await ready(cluster, "cold-1");
  assert.equal((await look(cluster, "devices/cold-1/blockers")).blocked_objects, COUNT);
  // A service that is stopped in order releases the device at once.
  await owner.kill("SIGTERM");
  const taken = await ask(elsewhere, "cold-1/register", {}, 201);
  assert.equal(taken.scanned_objects, COUNT);
  for (const key of keys) assert.equal((await look(elsewhere, `objects/${key}`)).cold_backing.owner.stable_id, "stranger");
});

void test("a bucket that the owner may not use, cannot reach or has no credentials for is refused when the device is checked", skip, async () => {
  await using storage = await inBucket.open();
  await using cluster = await startCluster();
  await cluster.addService("poor", storage.flags, { AWS_ACCESS_KEY_ID: "", AWS_SECRET_ACCESS_KEY: "" });
  await cluster.addService("bound", [...storage.flags, '--store_service.cold_tier_s3_prefixes=["s3://test/mine"]'], storage.env);
  const checked = async (stable_id: string, url: string) =>
    (await cluster.ask("POST", `${DEVICES}?check=true`, { stable_id, cold_tier_id: "cold-1", kind: "s3", target: { type: "s3", url } })) as {
      status: number;
      body: { error: string };
    };
  const cases: [string, string, number, RegExp][] = [
    ["poor", "s3://test/mine", 400, /AWS_ACCESS_KEY_ID.*cold_tier_s3_credentials_file/],
    ["bound", "s3://test/mineral", 400, /below s3:\/\/test\/mine only/],
    ["bound", "s3://test/mine/a", 201, /undefined/],
  ];
  for (const [owner, url, status, error] of cases) {
    const answer = await checked(owner, url);
    assert.equal(answer.status, status, JSON.stringify(answer.body));
    assert.match(String(answer.body.error), error);
  }
});
