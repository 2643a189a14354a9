// The rest of the RPC's table: calls of Mooncake's client when transfers fail, memory
// is unmounted or a disk is used; and each call against Mooncake's own master.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { RpcClient } from "../src/rpc/client.ts";
import { type OperationName, operations } from "../src/rpc/operations.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { bytesOf, type Holder, MIB, startHolder } from "./holder.ts";
import { startMaster, startMooncakeMaster } from "./master.ts";
import { type Recorded, requireSame, startRecorder } from "./recorder.ts";
import { makeFolder } from "./ssd.ts";

const needsWheel = needs("python-clients", "python3");

const missing = (recorded: readonly Recorded[], names: readonly OperationName[]): string[] => {
  const seen = requireSame(recorded);
  return names.flatMap((name) => ["request", "response"].map((kind) => `${name} ${kind}`)).filter((each) => !seen.has(each));
};

const revoked = ["PutRevoke", "UpsertRevoke", "BatchPutRevoke", "BatchUpsertRevoke"] as const;
const unmounted = ["GracefulUnmountSegment"] as const;
const offloaded = [
  ...(["MountLocalDiskSegment", "OffloadObjectHeartbeat", "ReportSsdCapacity", "NotifyOffloadSuccess", "PollRemoveAll"] as const),
  ...(["PromotionObjectHeartbeat", "UnmountLocalDiskSegment"] as const),
];

/** Makes puts of every kind, each to a holder that was just killed, and mounts and unmounts memory. */
async function failPuts(first: Holder, start: () => Promise<Holder>): Promise<void> {
  const { segment_ids: ids } = await first.call<{ segment_ids: string[] }>("allocate_and_mount_segment", 16 * MIB);
  assert.equal(await first.call("unmount_and_free_segment", ids, 1), 0);
  await first.call("batch_put_session_start", ["s1", "s2"], [100, 200]);
  await first.call("batch_put_session_revoke", ["s1", "s2"]);
  const long = bytesOf("x".repeat(5000));
  const calls: readonly (readonly [string, ...unknown[]])[] = [
    ["put", "p", long],
    ["upsert", "u", long],
    ["put_batch", ["b1", "b2"], ["1", "22"].map(bytesOf)],
    ["upsert_batch", ["c1", "c2"], ["1", "22"].map(bytesOf)],
  ];
  // Each put needs a holder of its own, since our master avoids a holder that was not reached.
  for (const [name, ...args] of calls) {
    await using dies = await start();
    const there = { config: { preferred_segment: await dies.name() } };
    await dies.kill();
    await first.call(name, ...args, there);
  }
}

for (const [what, start] of [
  ["its own master", startMooncakeMaster],
  ["our master", () => startMaster()],
] as const)
  void test(
    `messages of Mooncake's client to ${what} when transfers fail and memory is unmounted are decoded and encoded to the same bytes`,
    needsWheel,
    async () => {
      await using master = await start();
      await using relay = await startRecorder(master.rpcPort, "mooncake");
      await using first = await startHolder({ master: relay.port });
      await failPuts(first, () => startHolder({ master: relay.port }));
      assert.deepEqual(missing(relay.recorded, [...revoked, ...unmounted]), []);
    },
  );

for (const [what, start] of [
  ["its own master", () => startMooncakeMaster(["--enable_offload=true"])],
  ["our master", () => startMaster({ flags: ["--enable_offload=true"] })],
] as const)
  void test(`messages of Mooncake's client to ${what} about its disk are decoded and encoded to the same bytes`, needsWheel, async () => {
    await using folder = makeFolder();
    await using master = await start();
    await using relay = await startRecorder(master.rpcPort, "mooncake");
    await using holder = await startHolder({ master: relay.port, ssdPath: folder.path });
    const seen = (name: OperationName) => relay.recorded.some((each) => each.name === name && each.kind === "response");
    let at = 0;
    await until(
      "objects are on the disk",
      async () => {
        await holder.put(`k${at++}`, "x".repeat(100_000));
        return seen("NotifyOffloadSuccess") && seen("PromotionObjectHeartbeat") ? true : undefined;
      },
      500,
    );
    await holder.call("unmount_local_disk_segment", 0);
    await holder.call("close");
    assert.deepEqual(missing(relay.recorded, offloaded), []);
  });

const segment = segmentOf(1, 1_000_000n);
const ask = (rpc: RpcClient): { readonly [N in OperationName]?: () => Promise<unknown> } => ({
  GetFsdir: () => rpc.call("GetFsdir"),
  GetReplicaListByRegex: () => rpc.call("GetReplicaListByRegex", "k.*", ""),
  QuerySegmentStatus: () => rpc.call("QuerySegmentStatus", segment.name),
  QuerySegmentStatusById: () => rpc.call("QuerySegmentStatusById", segment.id),
  BatchQueryIp: () => rpc.call("BatchQueryIp", [clientID]),
  CopyStart: () => rpc.call("CopyStart", clientID, "k", "", segment.name, ["elsewhere:1"]),
  CopyRevoke: () => rpc.call("CopyRevoke", clientID, "k", ""),
  MoveStart: () => rpc.call("MoveStart", clientID, "k", "", segment.name, "elsewhere:1"),
  MoveRevoke: () => rpc.call("MoveRevoke", clientID, "k", ""),
  PromotionAllocStart: () => rpc.call("PromotionAllocStart", clientID, "k", "", 10n, []),
  NotifyPromotionSuccess: () => rpc.call("NotifyPromotionSuccess", clientID, "k", ""),
  NotifyPromotionFailure: () => rpc.call("NotifyPromotionFailure", clientID, "k", ""),
  EvictDiskReplica: () => rpc.call("EvictDiskReplica", clientID, "k", "", 2),
  BatchEvictDiskReplica: () => rpc.call("BatchEvictDiskReplica", clientID, ["k"], "", 2),
});

void test("calls that no function of Mooncake's API makes match those of its own master: arguments are accepted, answers are decoded", needsWheel, async () => {
  await using mooncake = await startMooncakeMaster();
  await using ours = await startMaster();
  const answers: Record<string, unknown>[] = [];
  for (const [port, brand] of [
    [mooncake.rpcPort, "mooncake"],
    [ours.rpcPort, "svc"],
  ] as const) {
    const rpc = await RpcClient.connect("127.0.0.1", port, { brand });
    const mounted = await rpc.call("MountSegment", segment, clientID);
    assert.ok(mounted.ok);
    assert.ok((await rpc.call("PutStart", clientID, "k", 10n, plain, "")).ok);
    assert.ok((await rpc.call("PutEnd", clientID, { key: "k", checksum: 7n }, 4, "")).ok);
    const given: Record<string, unknown> = {};
    for (const [name, call] of Object.entries(ask(rpc))) given[name] = await call();
    answers.push(given);
    rpc.close();
  }
  const [theirs, own] = answers as [Record<string, unknown>, Record<string, unknown>];
  // Calls with equal answers were also made with equal arguments.
  for (const name of ["QuerySegmentStatus", "QuerySegmentStatusById", "CopyRevoke", "MoveRevoke", "CopyStart", "MoveStart"])
    assert.deepEqual(own[name], theirs[name], name);
  const listed = (given: Record<string, unknown>) => (given["GetReplicaListByRegex"] as { ok: true; value: Map<string, unknown[]> }).value;
  assert.deepEqual(
    [...listed(own)].map(([key, each]) => [key, each.length]),
    [...listed(theirs)].map(([key, each]) => [key, each.length]),
  );
  const ips = (given: Record<string, unknown>) => (given["BatchQueryIp"] as { ok: true; value: Map<string, string[]> }).value;
  assert.deepEqual(ips(own), ips(theirs));
});

void test("every operation of Mooncake's table is declared, and called by these tests or related ones", () => {
  const basic = [
    "ServiceReady",
    "GetStorageConfig",
    "Ping",
    "MountSegment",
    "ReMountSegment",
    "FetchTasks",
    "PutStart",
    "PutEnd",
    "BatchPutStart",
    "BatchPutEnd",
  ];
  basic.push("GetReplicaList", "BatchGetReplicaList", "ExistKey", "BatchExistKey", "UpsertStart", "UpsertEnd", "BatchUpsertStart", "BatchUpsertEnd");
  basic.push("CopyEnd", "MoveEnd", "MarkTaskToComplete", "CreateCopyTask", "CreateMoveTask", "QueryTask", "Remove", "BatchRemove", "RemoveByRegex");
  basic.push("RemoveAll", "BatchReplicaClear", "UnmountSegment");
  // The operations of release 0.3.14, and those that few clients use.
  const newer = ["ProbeKey", "BatchProbeKey", "GetReplicaListForAdmin", "BatchGetReplicaListForAdmin", "EvictDiskReplicaIfCurrent", "RegisterPrefetchTask"];
  newer.push("MountNoFSegment", "ReMountNoFSegment", "UnmountNoFSegment", "GetAllNoFSegments", "GetNoFSegmentsByName");
  newer.push("DynamicReplicaCopyStart", "DynamicReplicaCopyEnd", "DynamicReplicaCopyRevoke");
  const asked = new Set<string>([...basic, ...newer, ...revoked, ...unmounted, ...offloaded, ...Object.keys(ask({} as RpcClient))]);
  // Our own operations are declared after Mooncake's.
  const declared = Object.keys(operations);
  assert.deepEqual(
    [...asked].filter((name) => !declared.includes(name)),
    [],
  );
  assert.deepEqual(
    declared.slice(0, declared.indexOf("Authorize")).filter((name) => !asked.has(name)),
    [],
  );
});
