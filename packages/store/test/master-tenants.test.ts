// Tenants: how much each may write, whose objects are evicted, and that no tenant sees another's.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { RpcClient } from "../src/rpc/client.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { openClient } from "./client.ts";
import { startMaster, type TestMaster } from "./master.ts";

const FLAGS = ["--enable_multi_tenants", "--client_ttl=600s", "--store.suspect_after_ms=600000", "--default_kv_lease_ttl=1ms"];

async function quota(master: TestMaster, method: string, tenant: string, bytes?: unknown): Promise<{ status: number; body: Record<string, unknown> }> {
  const body = bytes === undefined ? {} : { body: JSON.stringify({ requested_quota_bytes: bytes }) };
  const answer = await fetch(`${master.url}/api/v1/tenant_quotas?tenant_id=${tenant}`, { method, ...body });
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
}

async function put(rpc: RpcClient, tenant: string, key: string, sizeBytes = 100n): Promise<number> {
  const begun = await rpc.call("PutStart", clientID, key, sizeBytes, plain, tenant);
  if (!begun.ok) return begun.code;
  const ended = await rpc.call("PutEnd", clientID, { key, checksum: undefined }, 4, tenant);
  return ended.ok ? 0 : ended.code;
}

void test("a tenant writes only with a quota, within it, and its own oldest objects are evicted", async () => {
  await using master = await startMaster({ flags: FLAGS });
  const rpc = await master.rpc();
  await rpc.call("MountSegment", segmentOf(1, 1_000_000n), clientID);
  assert.equal(await put(rpc, "red", "k"), -1701);
  assert.equal((await quota(master, "GET", "red")).status, 404);
  assert.equal((await quota(master, "PUT", "red", 0)).body["error_code"], -600);
  assert.equal((await quota(master, "PUT", "red", 1000)).status, 200);
  assert.equal((await quota(master, "PUT", "blue", 500)).status, 200);
  assert.equal(await put(rpc, "blue", "k0"), 0);
  for (let at = 0; at < 30; at++) assert.equal(await put(rpc, "red", `k${at}`), 0);
  const red = (await quota(master, "GET", "red")).body;
  assert.equal(red["charged_bytes"], 1000);
  assert.deepEqual([red["effective_quota_bytes"], red["over_quota"], red["has_explicit_policy"]], [1000, false, true]);
  const there = await rpc.call("BatchExistKey", ["k0", "k29"], "red");
  assert.deepEqual(there, [
    { ok: true, value: false },
    { ok: true, value: true },
  ]);
  // The other tenant's object of the same name is unchanged, and only its own objects are listed.
  assert.deepEqual(await rpc.call("ExistKey", "k0", "blue"), { ok: true, value: true });
  const listed = await rpc.call("GetReplicaListByRegex", "k.*", "blue");
  assert.deepEqual(listed.ok && [...listed.value.keys()], ["k0"]);
  assert.equal((await fetch(`${master.url}/query_key?key=k29`)).status, 404);
  assert.equal((await fetch(`${master.url}/query_key?key=k29&tenant_id=red`)).status, 200);
  // An object above the whole quota, or pinned objects, cannot be helped by eviction.
  assert.equal(await put(rpc, "blue", "large", 501n), -1700);
  assert.equal((await quota(master, "DELETE", "red")).body["error_code"], -1702);
  const removed = await fetch(`${master.url}/api/v1/remove_all?tenant_id=red&force=true`, { method: "POST" });
  assert.deepEqual(await removed.json(), { success: true, removed_count: 10 });
  assert.equal((await quota(master, "DELETE", "red")).status, 200);
  assert.equal(await put(rpc, "red", "k"), -1701);
  rpc.close();
});

void test("objects that cannot be evicted make a tenant's put fail, and quotas survive a kill", async () => {
  await using master = await startMaster({ flags: FLAGS });
  let rpc = await master.rpc();
  await rpc.call("MountSegment", segmentOf(1, 1_000_000n), clientID);
  assert.equal((await quota(master, "PUT", "red", 200)).status, 200);
  for (const key of ["a", "b"]) {
    assert.ok((await rpc.call("PutStart", clientID, key, 100n, { ...plain, hardPin: true }, "red")).ok);
    assert.ok((await rpc.call("PutEnd", clientID, { key, checksum: undefined }, 4, "red")).ok);
  }
  assert.equal(await put(rpc, "red", "c"), -1700);
  await master.kill();
  rpc.close();
  await master.start();
  rpc = await master.rpc();
  await rpc.call("MountSegment", segmentOf(1, 1_000_000n), clientID);
  assert.equal((await quota(master, "GET", "red")).body["charged_bytes"], 200);
  assert.equal(await put(rpc, "red", "c"), -1700);
  rpc.close();
});

void test("a copy is charged to its tenant like a put, and refused above the quota, and a move is not", async () => {
  await using master = await startMaster({ flags: FLAGS });
  const rpc = await master.rpc();
  for (const number of [1, 2]) await rpc.call("MountSegment", segmentOf(number, 1_000_000n), clientID);
  const [source, target] = [segmentOf(1, 1n).name, segmentOf(2, 1n).name];
  assert.equal((await quota(master, "PUT", "red", 250)).status, 200);
  const config = { ...plain, preferredSegment: source, hardPin: true };
  for (const key of ["a", "b"]) {
    assert.ok((await rpc.call("PutStart", clientID, key, 100n, config, "red")).ok);
    assert.ok((await rpc.call("PutEnd", clientID, { key, checksum: undefined }, 4, "red")).ok);
  }
  assert.deepEqual(await rpc.call("CopyStart", clientID, "a", "red", source, [target]), { ok: false, code: -1700 });
  assert.equal((await quota(master, "GET", "red")).body["charged_bytes"], 200);
  assert.ok((await rpc.call("MoveStart", clientID, "a", "red", source, target)).ok);
  assert.ok((await rpc.call("MoveEnd", clientID, "a", "red")).ok);
  assert.equal((await quota(master, "PUT", "red", 300)).status, 200);
  assert.ok((await rpc.call("CopyStart", clientID, "b", "red", source, [target])).ok);
  assert.ok((await rpc.call("CopyEnd", clientID, "b", "red")).ok);
  assert.equal((await quota(master, "GET", "red")).body["charged_bytes"], 300);
  rpc.close();
});

void test("quotas that exceed the memory shrink in proportion", async () => {
  await using master = await startMaster({ flags: FLAGS });
  const rpc = await master.rpc();
  await rpc.call("MountSegment", segmentOf(1, 900n), clientID);
  await quota(master, "PUT", "red", 1200);
  await quota(master, "PUT", "blue", 600);
  assert.equal((await quota(master, "GET", "red")).body["effective_quota_bytes"], 600);
  assert.equal((await quota(master, "GET", "blue")).body["effective_quota_bytes"], 300);
  rpc.close();
});

void test("remove_all without a tenant removes every tenant's objects, as the listing shows them", async () => {
  await using master = await startMaster({ flags: FLAGS });
  const rpc = await master.rpc();
  await rpc.call("MountSegment", segmentOf(1, 1_000_000n), clientID);
  for (const tenant of ["default", "red", "blue"]) {
    assert.equal((await quota(master, "PUT", tenant, 1000)).status, 200);
    assert.equal(await put(rpc, tenant, "k"), 0);
  }
  assert.equal(await (await fetch(`${master.url}/get_all_keys`)).text(), "k\nk\nk\n");
  const removed = await fetch(`${master.url}/api/v1/remove_all?force=true`, { method: "POST" });
  assert.deepEqual(await removed.json(), { success: true, removed_count: 3 });
  assert.equal(await (await fetch(`${master.url}/get_all_keys`)).text(), "");
  rpc.close();
});

void test("with tenants off, requests for one tenant's keys are refused, since all keys are in one keyspace", async () => {
  await using master = await startMaster({ flags: FLAGS.slice(1) });
  const rpc = await master.rpc();
  await rpc.call("MountSegment", segmentOf(1, 1_000_000n), clientID);
  // Mooncake's clients name a tenant, and its masters ignore it.
  assert.equal(await put(rpc, "red", "k"), 0);
  for (const [method, path] of [
    ["POST", "/api/v1/remove_all?tenant_id=red&force=true"],
    ["GET", "/api/v1/objects?tenant_id=red"],
    ["GET", "/get_all_keys?tenant_id=red"],
    ["GET", "/query_key?key=k&tenant_id=red"],
    ["GET", "/batch_query_keys?keys=k&tenant_id=red"],
  ] as const) {
    const answer = await fetch(`${master.url}${path}`, { method });
    assert.equal(answer.status, 409, path);
    assert.match(((await answer.json()) as { error_message: string }).error_message, /tenants are off.*leave out tenant_id/, path);
  }
  for (const [method, path] of ["tenant", "tenantId", "tenant-id", "TENANT_ID", "tenant%5Fid"].flatMap((name) => [
    ["POST", `/api/v1/remove_all?force=true&${name}=default`],
    ["GET", `/query_key?key=k&${name}=default`],
  ]) as [string, string][]) {
    const answer = await fetch(`${master.url}${path}`, { method });
    assert.equal(answer.status, 400, path);
    assert.match(((await answer.json()) as { error_message: string }).error_message, /there is no parameter tenant.*named by tenant_id/i);
  }
  for (const named of ["", "&tenant_id=", "&tenant_id=default"]) assert.equal((await fetch(`${master.url}/query_key?key=k${named}`)).status, 200);
  await assert.rejects(openClient(master, { tenant: "red" }), /tenant "red": tenants are off at this master/);
  await using client = await openClient(master, { tenant: "default" });
  assert.deepEqual(await client.existsBatch(["k"]), [true]);
  rpc.close();
});
