// The cold tier's HTTP contract, case by case: what is refused, with which status, and that a refusal changes nothing.
import assert from "node:assert/strict";
import { test } from "node:test";
import { startCluster } from "./cluster.ts";
import { COLD, DEVICES } from "./cold.ts";
import { makeFolder } from "./cold-storage.ts";

void test("a device has an identity and an alias: both name it, and an alias of two devices names neither", async () => {
  await using folder = makeFolder();
  await using cluster = await startCluster();
  const of = (device_id: string | undefined, alias: string) => ({
    ...(device_id === undefined ? {} : { device_id }),
    ...{ stable_id: "owner", cold_tier_id: alias, kind: "ssd", target: { type: "directory", path: `${folder.path}/${device_id}` } },
  });
  const shown = (body: { device_id: string; cold_tier_id: string }) => [body.device_id, body.cold_tier_id];
  assert.deepEqual(shown((await cluster.ask("POST", DEVICES, of("d-1", "fast"))).body), ["d-1", "fast"]);
  assert.deepEqual(shown((await cluster.ask("POST", DEVICES, of(undefined, "plain"))).body), ["plain", "plain"]);
  for (const name of ["d-1", "fast"]) assert.deepEqual(shown((await cluster.ask("GET", `${DEVICES}/${name}`)).body), ["d-1", "fast"]);
  assert.equal((await cluster.ask("POST", DEVICES, of("d-1", "slow"))).status, 409, "another alias is another definition");
  assert.equal((await cluster.ask("POST", DEVICES, of("d-2", "fast"))).status, 201);
  const both = await cluster.ask("GET", `${DEVICES}/fast`);
  assert.equal(both.status, 409);
  assert.match(JSON.stringify(both.body), /fast is the alias of 2 cold-tier devices: name one by its device_id, of d-1, d-2/);
  assert.deepEqual(shown((await cluster.ask("GET", `${DEVICES}/d-2`)).body), ["d-2", "fast"]);
  assert.equal((await cluster.ask("POST", DEVICES, { ...of("a/b", "x") })).status, 400);
});

void test("every operation of the cold tier refuses wrong input, and a refusal changes nothing", async () => {
  await using folder = makeFolder();
  await using cluster = await startCluster();
  const good = { stable_id: "owner", cold_tier_id: "cold-1", kind: "ssd", target: { type: "directory", path: folder.path }, tags: ["b", "a"] };
  const created = await cluster.ask("POST", DEVICES, good);
  assert.equal(created.status, 201);
  assert.equal(created.body.message, "device created");
  const again = await cluster.ask("POST", DEVICES, { ...good, tags: ["a", "b"] });
  assert.deepEqual([again.status, again.body.message], [201, "device already exists"]);
  const before = (await cluster.ask("GET", DEVICES)).body;
  assert.deepEqual(before.devices, [
    {
      device_id: "cold-1",
      cold_tier_id: "cold-1",
      stable_id: "owner",
      epoch: null,
      kind: "ssd",
      target: good.target,
      root_dir: folder.path,
      state: "unregistered",
      schedulable: false,
      capacity_bytes: null,
      used_bytes: 0,
      reserved_bytes: 0,
      free_bytes: null,
      failure_count: 0,
      last_error: null,
      tags: ["b", "a"],
    },
  ]);
  const cases: [string, string, unknown, number, RegExp][] = [
    ["POST", DEVICES, { ...good, kind: "nfs" }, 409, /another definition/],
    ["POST", DEVICES, { ...good, kind: "tape" }, 400, /kind/],
    ["POST", DEVICES, { ...good, stable_id: " " }, 400, /stable_id/],
    ["POST", DEVICES, { ...good, cold_tier_id: "a/b" }, 400, /cold_tier_id/],
    ["POST", DEVICES, { ...good, target: { type: "directory", path: "here" } }, 400, /absolute/],
    ["POST", DEVICES, { ...good, target: { type: "directory", path: "/a/../b" } }, 400, /absolute/],
    ["POST", DEVICES, { ...good, target: { type: "disk" } }, 400, /target/],
    ["POST", DEVICES, { ...good, cold_tier_id: ".." }, 400, /cold_tier_id/],
    ["POST", DEVICES, { ...good, kind: "s3" }, 400, /kind s3 has a target of type s3/],
    ["POST", DEVICES, { ...good, target: { type: "s3", url: "s3://bucket" } }, 400, /kind s3 has a target of type s3/],
    ...["s3://bucket/", "s3://B", "s3://bucket//a", "s3://bucket/../a", "http://bucket/a", "s3://bucket/a?b"].map(
      (url): [string, string, unknown, number, RegExp] => ["POST", DEVICES, { ...good, kind: "s3", target: { type: "s3", url } }, 400, /s3:\/\/BUCKET/],
    ),
    ["POST", DEVICES, { ...good, kind: "s3", target: { type: "s3", url: "s3://bucket/a", secret_key: "x" } }, 400, /secret_key/],
    ["POST", DEVICES, { ...good, capacity_override_bytes: 0 }, 400, /capacity_override_bytes/],
    ["POST", DEVICES, { ...good, colour: "red" }, 400, /unknown field colour/],
    ["POST", DEVICES, { kind: "ssd" }, 400, /is required/],
    ["POST", DEVICES, "[]", 400, /object/],
    ["PUT", DEVICES, good, 405, /expected/],
    ["GET", `${DEVICES}?state=broken`, undefined, 400, /state/],
    ["GET", `${DEVICES}?kind=tape`, undefined, 400, /kind/],
    ["GET", `${DEVICES}?schedulable=maybe`, undefined, 400, /schedulable/],
    ["GET", `${DEVICES}/cold-2`, undefined, 404, /cold-2/],
    ["GET", `${DEVICES}/cold-1?tenant=t`, undefined, 404, /cold-1/],
    ["POST", `${DEVICES}/cold-2/register`, {}, 404, /cold-2/],
    ["POST", `${DEVICES}/cold-1/register`, {}, 400, /live runtime owner not found/],
    ["POST", `${DEVICES}/cold-1/register`, { dry_run: true }, 400, /live runtime owner not found/],
    ["POST", `${DEVICES}/cold-1/register`, { dry_run: "yes" }, 400, /dry_run/],
    ["GET", `${DEVICES}/cold-1/register`, undefined, 405, /POST/],
    ["POST", `${DEVICES}/cold-1/disable`, {}, 400, /unregistered/],
    ["POST", `${DEVICES}/cold-1/enable`, {}, 400, /unregistered/],
    ["POST", `${DEVICES}/cold-1/drain`, {}, 400, /unregistered/],
    ["POST", `${DEVICES}/cold-1/drain`, { migration_max_retries: -1 }, 400, /must be 0 or more/],
    ["POST", `${DEVICES}/cold-1/manual-gc`, {}, 400, /unregistered/],
    ["POST", `${DEVICES}/cold-1/manual-free`, {}, 400, /unregistered/],
    ["POST", `${DEVICES}/cold-1/blockers`, {}, 405, /GET/],
    ["GET", `${DEVICES}/cold-2/blockers`, undefined, 404, /cold-2/],
    ["GET", `${DEVICES}/cold-1/orphan-quarantine`, undefined, 400, /live runtime owner not found/],
    ["GET", `${COLD}/objects/none`, undefined, 404, /none/],
    ["GET", `${COLD}/offloads/trigger`, undefined, 405, /POST/],
    ["POST", `${COLD}/offloads/trigger`, {}, 400, /stable_id/],
    ["POST", `${COLD}/offloads/trigger`, { stable_id: "owner", max_tasks: 0 }, 400, /greater than 0/],
    ["POST", `${COLD}/offloads/trigger`, { stable_id: "owner", device: "x" }, 400, /unknown field device/],
    ["GET", `${COLD}/offloads/cold-tier-offload-1`, undefined, 404, /was not found/],
    ["GET", `${COLD}/nothing`, undefined, 404, /no such route/],
  ];
  for (const [method, path, body, status, error] of cases) {
    const answer = await cluster.ask(method, path, body);
    assert.equal(answer.status, status, `${method} ${path} ${JSON.stringify(body)}: ${JSON.stringify(answer.body)}`);
    assert.match(answer.body.error, error, `${method} ${path} ${JSON.stringify(body)}`);
  }
  assert.deepEqual((await cluster.ask("GET", DEVICES)).body, before);
  const bucket = { ...good, cold_tier_id: "cold-s", kind: "s3", target: { type: "s3", url: "s3://bucket/a" } };
  const inBucket = await cluster.ask("POST", DEVICES, bucket);
  assert.deepEqual([inBucket.status, inBucket.body.root_dir, inBucket.body.capacity_bytes], [201, "s3://bucket/a", null]);
  assert.equal((await cluster.ask("POST", DEVICES, { ...bucket, target: { type: "s3", url: "s3://bucket/b" } })).status, 409);
  assert.deepEqual(
    (await cluster.ask("GET", `${DEVICES}?kind=s3`)).body.devices.map(({ device_id }: { device_id: string }) => device_id),
    ["cold-s"],
  );
  const uuid = await cluster.ask("POST", DEVICES, { ...good, cold_tier_id: "cold-u", target: { type: "uuid", uuid: "0-0" } });
  assert.deepEqual([uuid.status, uuid.body.root_dir], [201, null]);
  assert.equal((await cluster.ask("GET", `${DEVICES}/cold-u/orphan-quarantine`)).status, 501);
  const idle = await cluster.ask("POST", `${DEVICES}/cold-1/unregister`, {});
  assert.deepEqual([idle.status, idle.body.state, idle.body.blocked_objects], [200, "unregistered", 0]);
  const counted = (await cluster.ask("GET", `${DEVICES}/cold-1/blockers`)).body;
  assert.deepEqual(counted, {
    device_id: "cold-1",
    state: "unregistered",
    schedulable: false,
    blocked_objects: 0,
    reclaimable_objects: 0,
    pending_delete_objects: 0,
    inflight_operations: 0,
  });
  assert.deepEqual((await cluster.ask("GET", `${COLD}/offloads`)).body, { count: 0, tasks: [] });
  for (const [query, count] of [
    ["?stable_id=owner", 3],
    ["?stable_id=x", 0],
    ["?state=unregistered&kind=ssd&schedulable=no", 2],
    ["?schedulable=yes", 0],
  ] as const)
    assert.equal((await cluster.ask("GET", `${DEVICES}${query}`)).body.devices.length, count, query);
});
