// JSON of any kind sent to the REST service and to the master's HTTP: each answer is below 500, nothing is mounted, and others are served.
import assert from "node:assert/strict";
import { test } from "node:test";
import { chance, fuzzJson, type JsonCall, residentBytes } from "@svc/harness/json-fuzz.ts";
import { startMaster } from "./master.ts";
import { startService } from "./service.ts";

const services: readonly JsonCall[] = [
  ["POST", "/api/mount", ["size", "protocol", "location"]],
  ["POST", "/api/mount_shm", ["name", "size", "offset", "protocol", "location"]],
  ["POST", "/api/unmount", ["segment_ids", "grace_period_seconds"]],
  ["POST", "/api/unmount_shm", ["segment_ids", "grace_period_seconds"]],
  ["POST", "/api/unmount_local_disk", ["grace_period_seconds"]],
  ["POST", "/api/reconfigure", ["mode", "path", "size", "offset", "protocol", "location"]],
  ["PUT", "/api/put", ["key", "value"]],
];
const masters: readonly JsonCall[] = [
  ["POST", "/api/v1/drain_jobs", ["segments", "target_segments", "max_concurrency"]],
  ["PUT", "/api/v1/tenant_quotas?tenant_id=t", ["requested_quota_bytes"]],
  ["POST", "/api/v1/remove_all", ["force"]],
];

const mountsNothing = (path: string, status: number, what: string) => assert.ok(!path.startsWith("/api/mount") || status !== 200, `mounted: ${what}`);

void test("the REST service and the master answer JSON of any kind with the error in it, mount nothing, and do not grow", async (t) => {
  const seed = Number(process.env["SVC_TEST_SEED"] ?? Date.now() % 1_000_000);
  t.diagnostic(`seed ${seed}`);
  const next = chance(seed);
  await using master = await startMaster({ flags: ["--enable_multi_tenants"] });
  await using service = await startService({ master: master.rpcPort, flags: ["--global_segment_size=16mb"] });
  await fuzzJson(service.url, services.slice(0, 1), next, mountsNothing);
  await fuzzJson(master.url, masters.slice(0, 1), next);
  const before = [residentBytes(service.pid), residentBytes(master.pid)];
  await fuzzJson(service.url, services, next, mountsNothing);
  await fuzzJson(master.url, masters, next);
  for (const path of [
    "/query_key?key=%",
    "/query_key?key=%ff%fe",
    `/batch_query_keys?keys=${"%2C,".repeat(1000)}`,
    "/query_segment?segment=%00",
    "/get_all_keys?limit=-1&after=%",
  ])
    assert.ok((await fetch(`${master.url}${path}`)).status < 501, path);
  const after = [residentBytes(service.pid), residentBytes(master.pid)];
  for (const [at, bytes] of after.entries()) assert.ok(bytes - (before[at] ?? 0) < 100 << 20, `grown by ${bytes - (before[at] ?? 0)} bytes`);
  const detail = (await (await fetch(`${master.url}/get_segments_detail`)).json()) as { total_segments: number };
  assert.equal(detail.total_segments, 1);
  assert.equal((await fetch(`${service.url}/health`)).status, 200);
  assert.equal((await fetch(`${master.url}/health`)).status, 200);
});
