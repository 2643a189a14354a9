// Further calls of Mooncake's newer clients: probes without a lease, NOF segments, and operations that this master does not offer.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { RpcClient } from "../src/rpc/client.ts";
import { codes } from "../src/rpc/codes.ts";
import { weightCalls } from "../src/rpc/operations.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { ask } from "./frames.ts";
import { startHolder } from "./holder.ts";
import { startMaster, type TestMaster } from "./master.ts";

const connect = (master: TestMaster) => RpcClient.connect("127.0.0.1", master.rpcPort, { brand: "mooncake" });

async function put(rpc: RpcClient, ...keys: string[]): Promise<void> {
  for (const key of keys) {
    assert.ok((await rpc.call("PutStart", clientID, key, 10n, plain, "")).ok);
    assert.ok((await rpc.call("PutEnd", clientID, { key, checksum: 7n }, 4, "")).ok);
  }
}

void test(
  "probe_key and batch_probe_key of Mooncake's client 0.3.14 take no lease, except on the last complete group",
  needs("mooncake-newest", "python3"),
  async () => {
    await using master = await startMaster();
    await using holder = await startHolder({ master: master.rpcPort, isNewest: true });
    for (const key of ["a", "b", "c", "d"]) assert.equal(await holder.put(key, "x"), 0);
    assert.equal(await holder.call("probe_key", "a"), 1);
    assert.equal(await holder.call("probe_key", "nothing"), 0);
    assert.deepEqual(await holder.call("batch_probe_key", ["a", "nothing", "b"]), [1, 0, 1]);
    assert.deepEqual(await holder.call("batch_probe_key", ["a", "b", "c", "d", "e", "nothing"], "LastHitOnly", 2), [1, 1, 1, 1, 0, 0]);
    assert.equal(await holder.call("remove", "a"), 0);
    assert.equal(await holder.call("remove", "b"), 0);
    assert.equal(await holder.call("remove", "c"), -706, "the last group that is there is leased");
    assert.equal(await holder.call("remove", "d"), -706);
  },
);

void test("an administrator sees the same replicas as a reader, without a lease", async () => {
  await using master = await startMaster();
  const rpc = await connect(master);
  assert.ok((await rpc.call("MountSegment", segmentOf(1, 1_000_000n), clientID)).ok);
  await put(rpc, "k", "l");
  const one = await rpc.call("GetReplicaListForAdmin", "k", "");
  const [first, second, third] = await rpc.call("BatchGetReplicaListForAdmin", ["k", "l", "nothing"], "");
  assert.ok(one.ok && first?.ok && second?.ok);
  assert.deepEqual(one, first);
  assert.equal(one.value.checksum, 7n);
  assert.deepEqual(third, { ok: false, code: codes.OBJECT_NOT_FOUND });
  for (const key of ["k", "l"]) assert.ok((await rpc.call("Remove", key, false, "")).ok, "it is not leased");
  await put(rpc, "k");
  assert.deepEqual(await rpc.call("GetReplicaList", "k", ""), { ...one, value: { ...one.value, replicas: await readable(rpc, "k") } });
  assert.deepEqual(await rpc.call("Remove", "k", false, ""), { ok: false, code: codes.OBJECT_HAS_LEASE });
  rpc.close();
});

const readable = async (rpc: RpcClient, key: string) => {
  const list = await rpc.call("GetReplicaListForAdmin", key, "");
  return list.ok ? list.value.replicas : [];
};

void test("a Mooncake client mounts, lists, uses, mounts again and unmounts a NOF segment with enable_nof", async () => {
  await using master = await startMaster({ flags: ["--enable_nof"] });
  const rpc = await connect(master);
  const nof = { id: "00000000-0000-0000-0000-0000000000aa", name: "nvme-1", base: 0n, sizeBytes: 1_048_576n, endpoint: "traddr:10.0.0.1 trsvcid:4420" };
  assert.deepEqual(await rpc.call("GetAllNoFSegments"), { ok: true, value: [] });
  assert.deepEqual(await rpc.call("GetNoFSegmentsByName", nof.name), { ok: false, code: codes.SEGMENT_NOT_FOUND });
  assert.deepEqual(await rpc.call("MountNoFSegment", nof, clientID), { ok: true, value: undefined });
  assert.deepEqual(await rpc.call("GetAllNoFSegments"), { ok: true, value: [nof] });
  assert.deepEqual(await rpc.call("GetNoFSegmentsByName", nof.name), { ok: true, value: [{ segment: nof.id, client: clientID }] });
  const placed = await rpc.call("PutStart", clientID, "k", 10n, { ...plain, replicas: 0n, nofReplicas: 1n }, "");
  assert.ok(placed.ok);
  assert.deepEqual(
    placed.value.map(({ place }) => place.type),
    ["nof"],
  );
  assert.deepEqual(await rpc.call("ReMountNoFSegment", [nof], clientID), { ok: true, value: undefined });
  assert.deepEqual(await rpc.call("UnmountNoFSegment", nof.id, clientID), { ok: true, value: undefined });
  assert.deepEqual(await rpc.call("GetAllNoFSegments"), { ok: true, value: [] });
  rpc.close();
});

void test("operations that this master does not offer are refused with a code, and the log names the call", async () => {
  await using master = await startMaster();
  const rpc = await connect(master);
  assert.ok((await rpc.call("MountSegment", segmentOf(1, 1_000_000n), clientID)).ok);
  await put(rpc, "k");
  const refused = { ok: false, code: codes.UNAVAILABLE_IN_CURRENT_STATUS };
  assert.deepEqual(await rpc.call("RegisterPrefetchTask", clientID, "k", ""), refused);
  assert.deepEqual(await rpc.call("DynamicReplicaCopyStart", clientID, "k", "", "a", ["b"], clientID, 1n), refused);
  assert.deepEqual(await rpc.call("DynamicReplicaCopyEnd", clientID, "k", "", clientID, 1n), refused);
  assert.deepEqual(await rpc.call("DynamicReplicaCopyRevoke", clientID, "k", "", clientID, 1n), refused);
  // This master assigned no generation, so nothing is evicted by one.
  assert.deepEqual(await rpc.call("EvictDiskReplicaIfCurrent", clientID, "k", "", 2, 1n), { ok: true, value: false });
  assert.deepEqual(await rpc.call("EvictDiskReplicaIfCurrent", clientID, "nothing", "", 2, 1n), { ok: false, code: codes.OBJECT_NOT_FOUND });
  rpc.close();
  for (const name of weightCalls)
    assert.match((await ask(master.rpcPort, name, Buffer.alloc(0))).message, new RegExp(`^${name} is not offered by this master`));
  for (const name of ["RegisterPrefetchTask", "DynamicReplicaCopyStart", ...weightCalls])
    await until(`the log names ${name}`, () => (master.log().includes(`${name} is not offered by this master`) ? true : undefined));
});
