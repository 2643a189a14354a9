// The RPC's types against bytes recorded between Mooncake's client and its own master, and the same messages with our master.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import type { OperationName } from "../src/rpc/operations.ts";
import { bytesOf, type Holder, startHolder } from "./holder.ts";
import { startMaster, startMooncakeMaster } from "./master.ts";
import { type Recorded, requireSame, startRecorder } from "./recorder.ts";

const needsWheel = needs("python-clients", "python3");

/** Makes every call that the client offers, with every field of its messages set. */
async function exercise(first: Holder, second: Holder, recorded: readonly Recorded[]): Promise<void> {
  const full = { replica_num: 2, soft_pin_action: 1, soft_pin_ttl_ms: 60_000, preferred_segments: [await second.name()] };
  await first.put("k1", "hello");
  await first.put("k2", "x".repeat(1000), full);
  await first.put("k3", "pinned", { with_hard_pin: true, prefer_alloc_in_same_node: true, preferred_segment: await first.name() });
  await first.call("put_batch", ["b1", "b2"], ["1", "22"].map(bytesOf), { config: { group_ids: ["g", ""] } });
  await first.call(
    "put_batch",
    Array.from({ length: 300 }, (_, at) => `many-${at}`),
    Array.from({ length: 300 }, () => bytesOf("m")),
  );
  await first.get("k1");
  await first.call("get_batch", ["b1", "b2", "nothing"]);
  await first.call("is_exist", "k1");
  await first.call("batch_is_exist", ["k1", "nothing"]);
  await first.call("get_replica_desc", "k2");
  await first.call("batch_get_replica_desc", ["k1", "k2"]);
  await first.call("upsert", "k1", bytesOf("again"));
  await first.call("upsert_batch", ["k1", "new"], ["again", "n"].map(bytesOf));
  for (const key of ["copied", "moved"]) await first.put(key, "bytes", { preferred_segment: await first.name() });
  await first.call("create_copy_task", "copied", [await second.name()]);
  const [id] = await first.call<[[number, number], number]>("create_move_task", "moved", await first.name(), await second.name());
  await first.call("query_task", { tuple: id });
  const ended = (kind: OperationName) => recorded.some(({ name }) => name === kind);
  await until("both tasks are done", () => (ended("CopyEnd") && ended("MoveEnd") && ended("MarkTaskToComplete") ? true : undefined));
  await first.call("remove", "k1");
  await first.call("remove", "k1", true);
  await first.call("batch_remove", ["b2", "nothing"], true);
  await first.call("remove_by_regex", "many-1.*", true);
  await first.call("batch_replica_clear", ["many-2"], "");
  await first.call("put", "k1", { bytes: "" });
  await first.call("remove_all", true);
}

const asked: OperationName[] = [
  ...([
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
  ] as const),
  ...(["GetReplicaList", "BatchGetReplicaList", "ExistKey", "BatchExistKey", "UpsertStart", "UpsertEnd", "BatchUpsertStart", "BatchUpsertEnd"] as const),
  ...(["CopyStart", "CopyEnd", "MoveStart", "MoveEnd", "MarkTaskToComplete"] as const),
  ...(["CreateCopyTask", "CreateMoveTask", "QueryTask", "Remove", "BatchRemove", "RemoveByRegex", "RemoveAll", "BatchReplicaClear", "UnmountSegment"] as const),
];

async function recordFrom(master: number): Promise<Recorded[]> {
  await using relay = await startRecorder(master, "mooncake");
  await using first = await startHolder({ master: relay.port });
  await using second = await startHolder({ master: relay.port });
  await exercise(first, second, relay.recorded);
  await first.call("close");
  return [...relay.recorded];
}

void test("every message between Mooncake's client and its own master is decoded and encoded to the same bytes", needsWheel, async () => {
  await using master = await startMooncakeMaster();
  const seen = requireSame(await recordFrom(master.rpcPort));
  for (const name of asked) for (const kind of ["request", "response"]) assert.ok(seen.has(`${name} ${kind}`), `${name} ${kind} was not recorded`);
});

void test("our master's messages, including those of its native core, are what the same types encode", needsWheel, async () => {
  await using master = await startMaster();
  const seen = requireSame(await recordFrom(master.rpcPort));
  // Our master needs only one mount: it does not ask a new client to mount again.
  const ours = asked.filter((name) => name !== "ReMountSegment");
  for (const name of ours) for (const kind of ["request", "response"]) assert.ok(seen.has(`${name} ${kind}`), `${name} ${kind} was not recorded`);
});
