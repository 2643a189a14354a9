// A leader and its standbys: acknowledged changes survive the leader, each master reports its role, and leadership can be handed over.
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { openEtcd } from "@svc/kit/etcd/client.ts";
import type { RpcClient } from "../src/rpc/client.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { type HaNode, startCluster, whenHeard } from "./ha-cluster.ts";
import { quietFlags } from "./ha-rounds.ts";

const GIB = 1n << 30n;

async function put(rpc: RpcClient, key: string, value: bigint): Promise<void> {
  const begun = await whenHeard(() => rpc.call("PutStart", clientID, key, 64n, plain, ""));
  assert.ok(begun.ok, `PutStart of ${key}: ${begun.ok ? "" : begun.code}`);
  const ended = await whenHeard(() => rpc.call("PutEnd", clientID, { key, checksum: value }, 4, ""));
  assert.ok(ended.ok, `PutEnd of ${key}: ${ended.ok ? "" : ended.code}`);
}

async function valueAt(rpc: RpcClient, key: string): Promise<bigint | undefined | number> {
  const found = await whenHeard(() => rpc.call("GetReplicaList", key, ""));
  return found.ok ? found.value.checksum : found.code;
}

async function mountAt(node: HaNode): Promise<RpcClient> {
  const rpc = await node.rpc();
  assert.ok((await rpc.call("MountSegment", segmentOf(1, GIB), clientID)).ok);
  return rpc;
}

void test("acknowledged changes survive the kill of a leader, on the standby that took over; the killed one joins again as a standby", async () => {
  await using cluster = await startCluster({ flags: quietFlags });
  const first = await cluster.inSync(1);
  const rpc = await mountAt(first);
  for (let at = 0; at < 200; at++) await put(rpc, `key-${at}`, BigInt(at));
  rpc.close();
  const { epoch } = await first.ha();
  await first.kill();
  const second = await cluster.leader();
  assert.notEqual(second.name, first.name);
  assert.equal((await second.ha()).epoch, epoch + 1);
  const after = await second.rpc();
  for (let at = 0; at < 200; at++) assert.equal(await valueAt(after, `key-${at}`), BigInt(at), `key-${at}`);
  await put(after, "new", 7n);
  after.close();
  await first.start();
  await cluster.inSync(1);
  // After a second takeover the first master also has what was written without it.
  await second.kill();
  const third = await cluster.leader();
  assert.equal(third.name, first.name);
  const last = await third.rpc();
  assert.equal(await valueAt(last, "new"), 7n);
  assert.equal(await valueAt(last, "key-7"), 7n);
  last.close();
});

void test("a standby without the enable_offload of its leader is refused by the setting's name, and joins with it", async () => {
  await using cluster = await startCluster({ flags: quietFlags, flagsOf: (name) => (name === "ada" ? ["--enable_offload"] : []) });
  const [leader, standby] = [await cluster.leader(), cluster.node("bob")];
  assert.equal(leader.name, "ada");
  await until("the leader refuses the standby by name", () => /enable_offload is on here, off at the standby/.test(leader.log()) || undefined, 10);
  assert.deepEqual((await leader.ha()).in_sync, []);
  await standby.kill();
  await standby.start(["--enable_offload"]);
  await cluster.inSync(1);
});

void test("a standby that takes over knows the objects on a client's disk, and not those that left it", async () => {
  await using cluster = await startCluster({ flags: [...quietFlags, "--enable_offload"] });
  const first = await cluster.inSync(1);
  const rpc = await mountAt(first);
  assert.ok((await rpc.call("MountLocalDiskSegment", clientID, true)).ok);
  for (const key of ["stays", "leaves"]) await put(rpc, key, 1n);
  const given = await rpc.call("OffloadObjectHeartbeat", clientID, true);
  assert.ok(given.ok && given.value.length === 2);
  const file = { bucketID: 1n, offset: 0n, keyBytes: 1n, dataBytes: 64n, endpoint: "10.0.0.1:9" };
  assert.ok((await rpc.call("NotifyOffloadSuccess", clientID, given.value, [file, file])).ok);
  assert.ok((await rpc.call("EvictDiskReplica", clientID, "leaves", "", 2)).ok);
  rpc.close();
  await first.kill();
  const after = await (await cluster.leader()).rpc();
  const placesOf = async (key: string) => {
    const found = await after.call("GetReplicaList", key, "");
    return found.ok ? found.value.replicas.map(({ place }) => place.type) : found.code;
  };
  assert.deepEqual(await placesOf("stays"), ["memory", "localDisk"]);
  assert.deepEqual(await placesOf("leaves"), ["memory"]);
  after.close();
});

void test("a standby reports its role and the leader, and refuses keys and segments with 503 and -1011", async () => {
  await using cluster = await startCluster({ flags: quietFlags });
  const leader = await cluster.inSync(1);
  const standby = cluster.nodes.find((node) => node !== leader) as HaNode;
  // The leader knows it earlier.
  await until("the standby knows that it is in sync", async () => (await standby.ha()).state === "standby" || undefined, 10);
  const inactive = { success: false, error_code: -1011, error_message: "service plane is not active" };
  for (const path of [
    "/query_key?key=a",
    "/batch_query_keys?keys=a",
    "/get_all_keys",
    "/get_all_segments",
    "/query_segment?segment=a",
    "/get_segments_detail",
    "/api/v1/segments/status?segment=a",
  ]) {
    const { status, text } = await standby.ask(path);
    assert.equal(status, 503, path);
    assert.deepEqual(JSON.parse(text), inactive, path);
  }
  for (const path of ["/version", "/metrics", "/metrics/summary", "/health"]) assert.equal((await standby.ask(path)).status, 200, path);
  assert.equal((await standby.ask("/health")).text, "OK");
  assert.equal((await standby.ask("/role")).text, "standby");
  assert.equal((await standby.ask("/ha_status")).text, "standby");
  assert.equal((await leader.ask("/role")).text, "leader");
  assert.equal((await leader.ask("/ha_status")).text, "serving");
  const view = { present: true, leader_address: `127.0.0.1:${leader.rpcPort}`, view_version: (await leader.ha()).view_version };
  assert.ok(view.view_version > 0);
  assert.deepEqual(JSON.parse((await standby.ask("/leader")).text), view);
  assert.deepEqual(JSON.parse((await leader.ask("/leader")).text), view);
  assert.match((await standby.ask("/metrics")).text, /^svc_store_leader 0$/m);
  assert.match((await leader.ask("/metrics")).text, /^svc_store_standbys_in_sync 1$/m);
  assert.match((await standby.ask("/metrics/summary")).text, /^role=standby, state=standby, service_ready=false/);
  const rpc = await standby.rpc();
  for (const answer of [await rpc.call("ServiceReady"), await rpc.call("GetReplicaList", "a", ""), await rpc.call("MountSegment", segmentOf(1, GIB), clientID)])
    assert.deepEqual(answer, { ok: false, code: -1011 });
  rpc.close();
});

void test("Mooncake's clients find the leader's address under the key of each brand, and its revision as the view's version", async () => {
  await using cluster = await startCluster({ flags: quietFlags });
  const first = await cluster.inSync(1);
  const etcd = openEtcd({ endpoints: cluster.etcd.endpoints });
  for (const brand of ["svc", "mooncake"]) assert.equal((await etcd.get(`${brand}-store/test/master_view`))?.value, `127.0.0.1:${first.rpcPort}`);
  const rpc = await mountAt(first);
  const pong = await rpc.call("Ping", clientID);
  assert.ok(pong.ok);
  assert.equal(pong.value.viewVersion, (await etcd.get("svc-store/test/master_view"))?.modRevision);
  rpc.close();
  await first.kill();
  const second = await cluster.leader();
  assert.equal((await etcd.get("mooncake-store/test/master_view"))?.value, `127.0.0.1:${second.rpcPort}`);
  await etcd.close();
});

void test("a planned hand-over loses nothing, and the former leader stands by afterwards in the same process", async () => {
  await using cluster = await startCluster({ masters: 3, flags: quietFlags });
  const first = await cluster.inSync(2);
  const { pid } = first;
  const target = cluster.nodes.find((node) => node !== first) as HaNode;
  const rpc = await mountAt(first);
  for (let at = 0; at < 50; at++) await put(rpc, `key-${at}`, BigInt(at));
  rpc.close();
  const unknown = await first.ask("/api/v1/lead?to=nobody", { method: "POST" });
  assert.equal(unknown.status, 404);
  assert.match(unknown.text, /there is no standby nobody; in sync: /);
  const asked = await target.ask(`/api/v1/lead?to=${target.name}`, { method: "POST" });
  assert.notEqual(asked.status, 200, "a standby cannot give the lead away");
  assert.equal((await first.ask(`/api/v1/lead?to=${target.name}`, { method: "POST" })).status, 200);
  assert.notEqual((await first.ha().catch(() => undefined))?.role, "leader", "who handed the lead over does not say that it leads");
  const second = await until("the target leads", async () => ((await target.ha().catch(() => undefined))?.state === "serving" ? target : undefined), 5);
  const after = await second.rpc();
  for (let at = 0; at < 50; at++) assert.equal(await valueAt(after, `key-${at}`), BigInt(at), `key-${at}`);
  await put(after, "new", 1n);
  after.close();
  await cluster.inSync(2);
  assert.equal(first.pid, pid);
  assert.ok(first.isRunning);
  assert.equal((await first.ha()).role, "standby");
});

void test("with asynchronous replication a put is acknowledged while the standby does not answer", async () => {
  await using cluster = await startCluster({
    flags: [...quietFlags, "--store.replication=async", "--store.standby_timeout_ms=60000", "--store.takeover_after_ms=60000"],
  });
  const leader = await cluster.inSync(1);
  const standby = cluster.nodes.find((node) => node !== leader) as HaNode;
  const rpc = await mountAt(leader);
  await standby.freeze();
  await put(rpc, "key", 1n);
  standby.thaw();
  rpc.close();
});
