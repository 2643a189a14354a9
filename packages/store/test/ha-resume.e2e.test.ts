// A standby that was away resumes from its own log if its leader still has the rest; otherwise it receives the whole state.
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import type { RpcClient } from "../src/rpc/client.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { type Cluster, type HaNode, startCluster, whenHeard } from "./ha-cluster.ts";
import { quietFlags } from "./ha-rounds.ts";

async function put(rpc: RpcClient, from: number, count: number): Promise<void> {
  for (let at = from; at < from + count; at++) {
    assert.ok((await whenHeard(() => rpc.call("UpsertStart", clientID, `key-${at}`, 64n, plain, ""))).ok);
    assert.ok((await whenHeard(() => rpc.call("UpsertEnd", clientID, { key: `key-${at}`, checksum: BigInt(at) }, 4, ""))).ok);
  }
}

async function holdsAll(node: HaNode, count: number): Promise<void> {
  const rpc = await node.rpc();
  for (let at = 0; at < count; at++) {
    const found = await whenHeard(() => rpc.call("GetReplicaList", `key-${at}`, ""));
    assert.ok(found.ok, `key-${at} at ${node.name}: ${found.ok ? "" : found.code}`);
    assert.equal(found.value.checksum, BigInt(at));
  }
  rpc.close();
}

/** Returns how standbys came to follow this leader. */
async function joins(leader: HaNode): Promise<{ resumes: number; wholes: number }> {
  const { text } = await leader.ask("/metrics");
  const of = (name: string) => Number(new RegExp(`^${name} (\\d+)$`, "m").exec(text)?.[1] ?? Number.NaN);
  return { resumes: of("svc_store_standby_resumes_total"), wholes: of("svc_store_standby_whole_states_total") };
}

async function mountAt(node: HaNode): Promise<RpcClient> {
  const rpc = await node.rpc();
  assert.ok((await rpc.call("MountSegment", segmentOf(1, 1n << 30n), clientID)).ok);
  return rpc;
}

const standbyOf = (cluster: Cluster, leader: HaNode) => cluster.nodes.find((node) => node !== leader) as HaNode;

void test("a standby that was killed or frozen resumes from its own log, and has everything written meanwhile when it takes over", async () => {
  await using cluster = await startCluster({ flags: quietFlags });
  const leader = await cluster.inSync(1);
  const standby = standbyOf(cluster, leader);
  const rpc = await mountAt(leader);
  await put(rpc, 0, 50);
  await standby.kill();
  await put(rpc, 50, 50);
  await standby.start();
  await cluster.inSync(1);
  assert.deepEqual(await joins(leader), { resumes: 1, wholes: 1 });
  await standby.freeze();
  await until("the leader goes on without it", async () => ((await leader.ha()).in_sync.length === 0 ? true : undefined), 5);
  await put(rpc, 100, 50);
  standby.thaw();
  await cluster.inSync(1);
  assert.deepEqual(await joins(leader), { resumes: 2, wholes: 1 });
  assert.match(standby.log(), /resuming from this master's log/);
  rpc.close();
  await leader.kill();
  assert.equal((await cluster.leader()).name, standby.name);
  await holdsAll(standby, 150);
});

void test("after a hand-over the former leader and the other standby resume from their own logs", async () => {
  await using cluster = await startCluster({ masters: 3, flags: quietFlags });
  const first = await cluster.inSync(2);
  const rpc = await mountAt(first);
  await put(rpc, 0, 50);
  rpc.close();
  const [target = ""] = (await first.ha()).in_sync;
  assert.equal((await first.ask(`/api/v1/lead?to=${target}`, { method: "POST" })).status, 200);
  const second = await until("both follow the next leader", async () => {
    const node = await cluster.inSync(2);
    return node.name === target ? node : undefined;
  });
  assert.deepEqual(await joins(second), { resumes: 2, wholes: 0 });
  const after = await second.rpc();
  await put(after, 50, 50);
  after.close();
  await second.kill();
  await holdsAll(await cluster.leader(), 100);
});

void test("a standby that was away for longer than the leader's log reaches, or has unacknowledged records, receives the whole state", async () => {
  await using cluster = await startCluster({ flags: [...quietFlags, "--store.resume_log_bytes=4096"] });
  const leader = await cluster.inSync(1);
  const standby = standbyOf(cluster, leader);
  const rpc = await mountAt(leader);
  await put(rpc, 0, 10);
  await standby.kill();
  await put(rpc, 10, 200);
  await standby.start();
  await cluster.inSync(1);
  assert.deepEqual(await joins(leader), { resumes: 0, wholes: 2 });
  // A frozen leader does not learn that it lost leadership; what it writes after the thaw must be discarded.
  await leader.freeze();
  const late = rpc.call("UpsertStart", clientID, "nobody's", 64n, plain, "").catch(() => undefined);
  const next = await until("the standby leads", async () => ((await standby.ha().catch(() => undefined))?.state === "serving" ? standby : undefined), 5);
  leader.thaw();
  await late;
  rpc.close();
  await cluster.inSync(1);
  const { resumes, wholes } = await joins(next);
  assert.ok(resumes + wholes >= 1);
  await holdsAll(next, 210);
  await next.kill();
  await holdsAll(await cluster.leader(), 210);
});
