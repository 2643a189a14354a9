// Arbitrary JSON sent to the admin server gets an answer below 500, creates no device or migration, and does not affect others.
import assert from "node:assert/strict";
import { test } from "node:test";
import { chance, fuzzJson, type JsonCall, residentBytes } from "@svc/harness/json-fuzz.ts";
import { startCluster } from "./cluster.ts";
import { COLD, DEVICES } from "./cold.ts";
import { makeFolder } from "./cold-storage.ts";

const MIGRATIONS = "/v1/route-migrations";
const route = ["authority", "tenant", "domain", "object_set", "key", "source_segment", "target_segments", "task_executor", "max_retries"];
const device = ["stable_id", "cold_tier_id", "kind", "target", "capacity_override_bytes", "tags"];
const drain = ["dry_run", "migration_task_executor", "migration_target_segments", "migration_max_retries"];
const bodies: readonly JsonCall[] = [
  ["POST", `${MIGRATIONS}/copy`, route],
  ["POST", `${MIGRATIONS}/move`, route],
  ["POST", DEVICES, device],
];
/** Requests about an existing device, and about owners that need not exist: an offload for a missing owner is accepted and waits for it. */
const verbs: readonly JsonCall[] = [
  ["POST", `${DEVICES}/cold-1/register`, ["scan_existing", "dry_run"]],
  ["POST", `${DEVICES}/cold-1/unregister`, ["dry_run", "force"]],
  ["POST", `${DEVICES}/cold-1/disable`, ["reason"]],
  ["POST", `${DEVICES}/cold-1/enable`, []],
  ["POST", `${DEVICES}/cold-1/drain`, drain],
  ["POST", `${DEVICES}/cold-1/manual-gc`, []],
  ["POST", `${DEVICES}/cold-1/manual-free`, []],
  ["POST", `${COLD}/offloads/trigger`, ["stable_id", "max_tasks"]],
];

void test("the admin server answers arbitrary JSON with what is wrong, creates nothing from it, and does not grow", async (t) => {
  const seed = Number(process.env["SVC_TEST_SEED"] ?? Date.now() % 1_000_000);
  t.diagnostic(`seed ${seed}`);
  const next = chance(seed);
  await using folder = makeFolder();
  await using cluster = await startCluster();
  const { admin } = cluster;
  const good = { stable_id: "owner", cold_tier_id: "cold-1", kind: "ssd", target: { type: "directory", path: folder.path } };
  assert.equal((await cluster.ask("POST", DEVICES, good)).status, 201);
  const refused = (_path: string, status: number, what: string) => assert.ok(status >= 400, `taken: ${what}`);
  await fuzzJson(admin.url, bodies.slice(0, 1), next, refused);
  const before = [residentBytes(admin.pid), (await cluster.ask("GET", DEVICES)).body];
  await fuzzJson(admin.url, bodies, next, refused);
  await fuzzJson(admin.url, verbs, next);
  for (const path of [
    `${DEVICES}/%`,
    `${DEVICES}/%ff%fe`,
    `${DEVICES}/${"a".repeat(9000)}`,
    `${COLD}/objects/%00`,
    `${DEVICES}?state=%`,
    `${MIGRATIONS}/%2e%2e`,
  ])
    assert.ok((await fetch(`${admin.url}${path}`)).status < 500, path);
  assert.deepEqual((await cluster.ask("GET", DEVICES)).body, before[1]);
  assert.equal((await cluster.ask("GET", MIGRATIONS)).body.count, 0);
  assert.ok(residentBytes(admin.pid) - before[0] < 100 << 20);
  assert.equal((await fetch(`${admin.url}/healthz`)).status, 200);
});
