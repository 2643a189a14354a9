// Frozen leaders, dead standbys, an unreachable etcd: which master answers then, and that no acknowledged change is lost.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "@svc/harness/until.ts";
import { openEtcd } from "@svc/kit/etcd/client.ts";
import type { RpcClient } from "../src/rpc/client.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { type HaNode, startCluster } from "./ha-cluster.ts";
import { quietFlags } from "./ha-rounds.ts";

const NOT_NOW = -1010;
const GIB = 1n << 30n;

/** Returns 0, or the code of the step that was refused. */
async function put(rpc: RpcClient, key: string, value: bigint): Promise<number> {
  const begun = await rpc.call("PutStart", clientID, key, 64n, plain, "");
  if (!begun.ok) return begun.code;
  const ended = await rpc.call("PutEnd", clientID, { key, checksum: value }, 4, "");
  return ended.ok ? 0 : ended.code;
}

async function mountAt(node: HaNode): Promise<RpcClient> {
  const rpc = await node.rpc();
  assert.ok((await rpc.call("MountSegment", segmentOf(1, GIB), clientID)).ok);
  return rpc;
}

void test("a leader that was frozen loses the lead, answers nothing when it wakes, and stands by", async () => {
  await using cluster = await startCluster({ flags: quietFlags });
  const first = await cluster.inSync(1);
  const second = cluster.nodes.find((node) => node !== first) as HaNode;
  const rpc = await mountAt(first);
  assert.equal(await put(rpc, "key", 1n), 0);
  await first.freeze();
  // The call arrives while the leader is frozen; its answer after the thaw must not be outdated.
  const late = rpc.call("GetReplicaList", "key", "").then(
    (answer) => answer.ok,
    () => false,
  );
  await until("the standby leads", async () => ((await second.ha().catch(() => undefined))?.state === "serving" ? true : undefined));
  const there = await second.rpc();
  const found = await until("its changes are answered", async () =>
    (await put(there, "other", 2n)) === 0 ? await there.call("GetReplicaList", "key", "") : undefined,
  );
  assert.ok(found.ok);
  assert.equal(found.value.checksum, 1n);
  first.thaw();
  assert.equal(await late, false, "a leader that was deposed meanwhile answered a read");
  rpc.close();
  await cluster.inSync(1);
  assert.equal((await first.ha()).role, "standby");
  const again = await until("a read at the new leader", async () => {
    const answer = await there.call("GetReplicaList", "other", "");
    return answer.ok ? answer.value.checksum : undefined;
  });
  assert.equal(again, 2n);
  there.close();
});

void test("a standby that freezes leaves the set before anything is acknowledged without it, and comes back", async () => {
  // The timeout ends before a call of these tests does.
  await using cluster = await startCluster({ flags: [...quietFlags, "--store.standby_timeout_ms=2000"] });
  const leader = await cluster.inSync(1);
  const standby = cluster.nodes.find((node) => node !== leader) as HaNode;
  const rpc = await mountAt(leader);
  assert.equal(await put(rpc, "before", 1n), 0);
  await standby.freeze();
  const outcome = await until("a put is acknowledged again", async () => ((await put(rpc, `during-${performance.now()}`, 2n)) === 0 ? true : undefined));
  assert.ok(outcome);
  assert.deepEqual((await leader.ha()).in_sync, []);
  standby.thaw();
  await cluster.inSync(1);
  assert.equal((await leader.ha()).role, "leader");
  rpc.close();
});

void test("without etcd puts continue while the set is complete, are refused with -1010 and the reason once it is not, and continue when etcd is back", async () => {
  await using cluster = await startCluster({ flags: quietFlags });
  const leader = await cluster.inSync(1);
  const standby = cluster.nodes.find((node) => node !== leader) as HaNode;
  const rpc = await mountAt(leader);
  await cluster.etcd.members[0]?.kill();
  for (let at = 0; at < 50; at++) {
    // A standby without contact for half a second, as on a machine that stalled, is tried again.
    await until("a put without etcd", async () => {
      const code = await put(rpc, at === 0 ? "key-0" : `key-${performance.now()}`, 1n);
      assert.ok(code === 0 || code === NOT_NOW, `${code}`);
      return code === 0 ? true : undefined;
    });
    await sleep(20);
  }
  await standby.kill();
  // A put that has begun waits for etcd, so each attempt uses a connection of its own.
  const tryPut = async (key: string): Promise<number> => {
    const own = await leader.rpc();
    try {
      return await put(own, key, 1n);
    } catch {
      return 1;
    } finally {
      own.close();
    }
  };
  await until("puts are refused", async () => ((await tryPut("late")) === NOT_NOW ? true : undefined));
  const reader = await leader.rpc();
  assert.deepEqual(await reader.call("GetReplicaList", "key-0", ""), { ok: false, code: NOT_NOW });
  assert.deepEqual(await reader.call("ServiceReady"), { ok: false, code: NOT_NOW });
  reader.close();
  const health = await until("its health says so", async () => {
    const answer = await leader.ask("/health");
    return answer.status === 503 ? answer.text : undefined;
  });
  assert.match(health, /nothing is answered about keys/);
  const query = await until("the reason is shown", async () => {
    const answer = await leader.ask("/query_key?key=key-0");
    return answer.text.includes("etcd") ? answer : undefined;
  });
  assert.equal(query.status, 503);
  assert.equal((JSON.parse(query.text) as { error_code: number }).error_code, NOT_NOW);
  await cluster.etcd.members[0]?.start();
  await until("puts go on", async () => ((await tryPut(`again-${performance.now()}`)) === 0 ? true : undefined));
  assert.equal((await leader.ha()).role, "leader");
  rpc.close();
  await standby.start();
  await cluster.inSync(1);
});

void test("a leadership record that etcd lost is written again by the leader, and no other master leads", async () => {
  await using cluster = await startCluster({ flags: quietFlags });
  const leader = await cluster.inSync(1);
  const rpc = await mountAt(leader);
  assert.equal(await put(rpc, "key", 1n), 0);
  const etcd = openEtcd({ endpoints: cluster.etcd.endpoints });
  await etcd.transact({ do: [{ delete: "svc-store/test/", isPrefix: true }] });
  await until("both keys are there again", async () =>
    (await etcd.get("svc-store/test/leadership")) && (await etcd.get("svc-store/test/master_view")) ? true : undefined,
  );
  await etcd.close();
  assert.equal(await put(rpc, "other", 2n), 0);
  assert.equal((await cluster.inSync(1)).name, leader.name);
  rpc.close();
});

void test("after all masters were killed, those that restart have all acknowledged changes, whichever starts first", async () => {
  await using cluster = await startCluster({ flags: quietFlags });
  for (const order of [0, 1]) {
    const leader = await cluster.inSync(1);
    const rpc = await mountAt(leader);
    for (let at = 0; at < 20; at++) assert.equal(await put(rpc, `${order}-${at}`, BigInt(at)), 0);
    rpc.close();
    for (const node of cluster.nodes) process.kill(node.pid, "SIGKILL");
    for (const node of cluster.nodes) await node.kill();
    await (cluster.nodes[order] as HaNode).start();
    await (cluster.nodes[1 - order] as HaNode).start();
    const after = await cluster.inSync(1);
    const again = await mountAt(after);
    for (let at = 0; at < 20; at++) {
      const found = await again.call("GetReplicaList", `${order}-${at}`, "");
      assert.ok(found.ok, `${order}-${at}: ${found.ok ? "" : found.code}`);
      assert.equal(found.value.checksum, BigInt(at));
    }
    again.close();
  }
});
