// Rolling upgrades: masters of two releases or of two log formats together, in the documented order and in the wrong one.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { openEtcd } from "@svc/kit/etcd/client.ts";
import type { RpcClient } from "../src/rpc/client.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { type HaNode, logFolder, startCluster, whenHeard } from "./ha-cluster.ts";
import { quietFlags } from "./ha-rounds.ts";
import { messages, recordStream, replayStream } from "./ha-stream.ts";

const FORMER_FORMAT = 1;
const FORMAT = 2;

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
    assert.ok(found.ok && found.value.checksum === BigInt(at), `key-${at} at ${node.name}`);
  }
  rpc.close();
}

/** Returns the format of the log file that is being written. */
function formatOf(node: HaNode): number {
  const [last = ""] = readdirSync(logFolder(node))
    .filter((name) => name.startsWith("log-"))
    .sort()
    .reverse();
  return readFileSync(join(logFolder(node), last)).readUInt32LE(8);
}

void test("enable_offload is switched on master by master: first the standby, then a hand-over to it, then the last one; nothing is lost", async () => {
  await using cluster = await startCluster({ flags: quietFlags });
  const first = await cluster.inSync(1);
  const second = cluster.nodes.find((node) => node !== first) as HaNode;
  const rpc = await first.rpc();
  assert.ok((await rpc.call("MountSegment", segmentOf(1, 1n << 30n), clientID)).ok);
  await put(rpc, 0, 20);
  await second.kill();
  await second.start(["--enable_offload"]);
  await cluster.inSync(1);
  // Under a leader without disks it writes the newer format already, and the leader the older one.
  assert.deepEqual([formatOf(first), formatOf(second)], [3, 4]);
  await put(rpc, 20, 20);
  rpc.close();
  assert.equal((await first.ask(`/api/v1/lead?to=${second.name}`, { method: "POST" })).status, 200);
  await until("the former leader is refused with the reason", () => /enable_offload is on here, off at the standby/.test(second.log()) || undefined);
  assert.equal((await cluster.leader()).name, second.name);
  await first.kill();
  await first.start(["--enable_offload"]);
  await cluster.inSync(1);
  const after = await second.rpc();
  await put(after, 40, 20);
  after.close();
  await second.kill();
  const last = await cluster.leader();
  assert.equal(last.name, first.name);
  await holdsAll(last, 60);
});

void test("a standby of an older log format is refused with the order of an upgrade, and one of the previous release receives the whole state", async () => {
  await using cluster = await startCluster({ masters: 1, flags: quietFlags });
  const leader = await cluster.leader();
  const stream = (await leader.ha()).leader?.stream as string;
  using older = await recordStream(stream, cluster.clusterID, FORMER_FORMAT);
  const refusal = await until("it is refused", () => older.heard.find(({ type }) => type === messages.refused));
  assert.match(refusal.payload.toString(), /the log's format here is 2, the standby's 1: upgrade the standbys first/);
  using former = await recordStream(stream, cluster.clusterID, FORMAT);
  await until("it has the whole state", () => former.heard.some(({ type }) => type === messages.whole) || undefined);
  assert.equal(former.heard[0]?.type, messages.begin);
});

void test("a standby follows a leader of the previous release, takes over when it ends, and has all that it sent", async () => {
  await using cluster = await startCluster({ masters: 1, flags: quietFlags });
  const leader = await cluster.leader();
  const rpc = await leader.rpc();
  assert.ok((await rpc.call("MountSegment", segmentOf(1, 1n << 30n), clientID)).ok);
  await put(rpc, 0, 20);
  const former = await recordStream((await leader.ha()).leader?.stream as string, cluster.clusterID, FORMAT);
  await until("it is in sync", async () => ((await leader.ha()).in_sync.includes("former") ? true : undefined));
  await put(rpc, 20, 20);
  former[Symbol.dispose]();
  const sent = former.heard.filter(({ type }) => type !== messages.beat);
  assert.ok(sent.some(({ type }) => type === messages.frame));
  rpc.close();
  await leader.kill();

  // Another cluster is led by the recorded messages.
  using played = await replayStream(sent);
  const key = "svc-store/test/leadership";
  const member = { id: "former", name: "former", rpc: "127.0.0.1:1", http: "http://127.0.0.1:1", stream: `127.0.0.1:${played.port}` };
  const record = (inSync: readonly object[]) => JSON.stringify({ epoch: Number(sent[0]?.epoch), leader: member, inSync });
  await using other = await startCluster({
    masters: 1,
    flags: quietFlags,
    async prepare(etcd) {
      const records = openEtcd({ endpoints: etcd.endpoints });
      await records.put(key, record([]));
      await records.close();
    },
  });
  const standby = other.nodes[0] as HaNode;
  await played.ready();
  const id = readFileSync(join(logFolder(standby), "member-id"), "latin1").trim();
  const records = openEtcd({ endpoints: other.etcd.endpoints });
  await records.put(key, record([{ id, name: standby.name, rpc: `127.0.0.1:${standby.rpcPort}`, http: standby.url, stream: "127.0.0.1:1" }]));
  await records.close();
  played[Symbol.dispose]();
  assert.equal((await other.leader()).name, standby.name);
  await holdsAll(standby, 40);
});
