// The REST service's disk: mounted by its settings, unmounted by /api/unmount_local_disk; its KV events, and its records in the log.
import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { until } from "@svc/harness/until.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { openClient, startClient } from "./client.ts";
import { endpointsIn, subscribe } from "./kv-listeners.ts";
import { startMaster } from "./master.ts";
import { startService } from "./service.ts";
import { bytesOf, filesIn, makeFolder } from "./ssd.ts";

const MIB = 2 ** 20;
const OFFLOAD = ["--enable_offload=true", "--default_kv_lease_ttl=200"];

void test("the service's disk is unmounted for good: readers miss at once, the grace period is respected, and a bad body changes nothing", async () => {
  await using folder = makeFolder();
  const home = makeHome();
  const { live, replay } = endpointsIn(home);
  const events = ["--enable_kv_events=true", `--kv_events_bind_endpoint=${live}`, `--kv_events_replay_endpoint=${replay}`, "--kv_events_backend_id=pool"];
  await using master = await startMaster({ home, flags: [...OFFLOAD, ...events] });
  using listener = subscribe(live);
  await using service = await startService({
    master: master.rpcPort,
    flags: ["--global_segment_size=16mb", "--enable_ssd_offload=true", `--ssd_offload_path=${folder.path}`, "--ssd_offload_size=64mb"],
  });
  await using client = await openClient(master);
  const ours = (type: string) => listener.events().filter((event) => event.event_type === type && event["medium"] === "disk");
  await until("the subscriber hears of a disk", async () => {
    await client.put(`warm-${Math.random()}`, bytesOf("warm", 1000));
    return ours("stored").length > 0 ? true : undefined;
  });
  await client.put("42", bytesOf("42", MIB));
  await until("it lies there", () => (ours("stored").some((event) => event.object_key === "42") ? true : undefined));
  const [first] = ours("stored");
  assert.equal(Number(first?.["event_id"]), 0, "a medium's stream counts its own events");
  const bad = await service.post("/api/unmount_local_disk", { grace_period_seconds: 3601 });
  assert.equal(bad.status, 400);
  assert.equal((await service.post("/api/unmount_local_disk", "{")).status, 400);
  const disks = async () => ((await (await fetch(`${master.url}/api/v1/disks`)).json()) as { disks: unknown[] }).disks.length;
  assert.equal(await disks(), 1);
  const begun = performance.now();
  const [answer, again] = await Promise.all([
    service.post("/api/unmount_local_disk", { grace_period_seconds: 1 }),
    until("readers are sent there no more", async () => ((await disks()) === 0 ? true : undefined)),
  ]);
  assert.deepEqual(answer, { status: 200, body: { status: "success" } });
  assert.equal(again, true);
  assert.ok(performance.now() - begun >= 990, "the grace was waited for");
  await until("subscribers know", () => (ours("removed").some((event) => event.object_key === "42") ? true : undefined));
  assert.ok((await client.get("42"))?.equals(bytesOf("42", MIB)), "memory has it still");
  assert.deepEqual(await service.post("/api/unmount_local_disk", {}), { status: 200, body: { status: "success" } });
  const files = filesIn(folder.path).length;
  await client.put("later", bytesOf("later", 1000));
  await new Promise((resolve) => setTimeout(resolve, 500));
  assert.equal(filesIn(folder.path).length, files, "nothing is stored any more");
  removeHome(home);
});

void test("a folder that another process uses, or that cannot be created, is refused by name", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: OFFLOAD });
  await using _holder = await startClient(master, { segmentBytes: MIB, ssdFolder: folder.path, ssdBytes: MIB });
  const flags = ["--global_segment_size=16mb", "--enable_ssd_offload=true"];
  await assert.rejects(startService({ master: master.rpcPort, flags: [...flags, `--ssd_offload_path=${folder.path}`] }), /is used by another process/);
  await assert.rejects(startService({ master: master.rpcPort, flags: [...flags, "--ssd_offload_path=/proc/none"] }), /\/proc\/none/);
  await assert.rejects(startService({ master: master.rpcPort, flags }), /ssd_offload_path/);
});

void test("a Mooncake owner stores what it is given, reports it, evicts and promotes by its own calls", async () => {
  await using master = await startMaster({
    flags: [...OFFLOAD, "--promotion_on_hit=true", "--promotion_threshold=1", "--client_ttl=600s", "--store.suspect_after_ms=600000"],
  });
  const rpc = await master.rpc();
  assert.deepEqual(await rpc.call("OffloadObjectHeartbeat", clientID, true), { ok: false, code: -101 });
  assert.equal((await rpc.call("MountSegment", segmentOf(1, 1n << 20n), clientID)).ok, true);
  assert.equal((await rpc.call("MountLocalDiskSegment", clientID, true)).ok, true);
  assert.equal((await rpc.call("ReportSsdCapacity", clientID, 1n << 30n)).ok, true);
  assert.equal((await rpc.call("PutStart", clientID, "k", 100n, plain, "")).ok, true);
  assert.equal((await rpc.call("PutEnd", clientID, { key: "k", checksum: 7n }, 4, "")).ok, true);
  const given = await rpc.call("OffloadObjectHeartbeat", clientID, true);
  assert.deepEqual(given, { ok: true, value: [{ tenant: "default", key: "k", sizeBytes: 100n }] });
  assert.deepEqual(await rpc.call("OffloadObjectHeartbeat", clientID, true), { ok: true, value: [] });
  const metadata = { bucketID: 1n, offset: 0n, keyBytes: 1n, dataBytes: 100n, endpoint: "10.0.0.1:9" };
  assert.equal((await rpc.call("NotifyOffloadSuccess", clientID, [{ tenant: "default", key: "k", sizeBytes: 100n }], [metadata])).ok, true);
  const list = await rpc.call("GetReplicaList", "k", "");
  assert.ok(list.ok);
  assert.deepEqual(
    list.value.replicas.map(({ place }) => place.type),
    ["memory", "localDisk"],
  );
  assert.deepEqual(list.value.replicas[1]?.place, { type: "localDisk", clientID, sizeBytes: 100n, endpoint: "10.0.0.1:9" });
  // A file that the owner finds after its restart, of an object without other replicas, restores the object.
  const found = { tenant: "default", key: "found", sizeBytes: 50n };
  assert.equal((await rpc.call("NotifyOffloadSuccess", clientID, [found], [{ ...metadata, dataBytes: 50n }])).ok, true);
  assert.deepEqual(await rpc.call("ExistKey", "found", ""), { ok: true, value: true });
  assert.equal((await rpc.call("GetReplicaList", "found", "")).ok, true);
  assert.deepEqual(await rpc.call("PromotionObjectHeartbeat", clientID), { ok: true, value: [found] });
  const started = await rpc.call("PromotionAllocStart", clientID, "found", "", 50n, []);
  assert.ok(started.ok && started.value.target.place.type === "memory" && started.value.target.status === 2);
  assert.deepEqual(await rpc.call("PromotionAllocStart", clientID, "found", "", 50n, []), { ok: false, code: -711 });
  assert.equal((await rpc.call("NotifyPromotionSuccess", clientID, "found", "")).ok, true);
  assert.deepEqual(await rpc.call("NotifyPromotionFailure", clientID, "found", ""), { ok: false, code: -709 });
  assert.equal((await rpc.call("EvictDiskReplica", clientID, "found", "", 2)).ok, true);
  assert.deepEqual(await rpc.call("BatchEvictDiskReplica", clientID, ["found", "none"], "", 2), [
    { ok: false, code: -710 },
    { ok: false, code: -704 },
  ]);
  assert.deepEqual(await rpc.call("PollRemoveAll", clientID), { ok: true, value: false });
  assert.ok((await rpc.call("RemoveAll", true, "")) >= 2n);
  assert.deepEqual(await rpc.call("PollRemoveAll", clientID), { ok: true, value: true });
  assert.deepEqual(await rpc.call("PollRemoveAll", clientID), { ok: true, value: false });
  await master.kill();
  await master.start();
  const after = await master.rpc();
  assert.deepEqual(await after.call("OffloadObjectHeartbeat", clientID, true), { ok: true, value: [] });
  assert.equal((await after.call("UnmountLocalDiskSegment", clientID)).ok, true);
  assert.equal((await after.call("UnmountLocalDiskSegment", clientID)).ok, true);
  after.close();
  rpc.close();
});

void test("the log has the older format while no disks are allowed, each format is read by this release, and a newer one is refused", async () => {
  const home = makeHome();
  const versions = () =>
    readdirSync(join(home, "store"))
      .filter((name) => /^(log|snapshot)-.*\.log$/.test(name))
      .map((name) => readFileSync(join(home, "store", name)).readUInt32LE(8));
  const waiting = ["--client_ttl=600s", "--store.suspect_after_ms=600000"];
  await using master = await startMaster({ home, flags: waiting });
  const rpc = await master.rpc();
  assert.equal((await rpc.call("MountSegment", segmentOf(1, 1n << 20n), clientID)).ok, true);
  assert.equal((await rpc.call("PutStart", clientID, "old", 100n, plain, "")).ok, true);
  assert.equal((await rpc.call("PutEnd", clientID, { key: "old", checksum: undefined }, 4, "")).ok, true);
  rpc.close();
  assert.deepEqual(versions(), [3]);
  await master.kill();
  await master.start(OFFLOAD);
  assert.ok(versions().includes(4));
  const again = await master.rpc();
  assert.equal((await again.call("ReMountSegment", [segmentOf(1, 1n << 20n)], clientID)).ok, true);
  assert.deepEqual(await again.call("ExistKey", "old", ""), { ok: true, value: true });
  assert.equal((await again.call("MountLocalDiskSegment", clientID, true)).ok, true);
  assert.equal((await again.call("OffloadObjectHeartbeat", clientID, true)).ok, true);
  const metadata = { bucketID: 1n, offset: 0n, keyBytes: 1n, dataBytes: 100n, endpoint: "10.0.0.1:9" };
  assert.equal((await again.call("NotifyOffloadSuccess", clientID, [{ tenant: "default", key: "disk-only", sizeBytes: 5n }], [metadata])).ok, true);
  again.close();
  await master.kill();
  // With disks turned off memory is unchanged, and objects that lay only on disks are forgotten.
  await master.start();
  const off = await master.rpc();
  assert.equal((await off.call("ReMountSegment", [segmentOf(1, 1n << 20n)], clientID)).ok, true);
  assert.deepEqual(await off.call("ExistKey", "old", ""), { ok: true, value: true });
  assert.deepEqual(await off.call("ExistKey", "disk-only", ""), { ok: true, value: false });
  off.close();
  await master.kill();
  for (const [flag, version] of [
    ["--root_fs_dir=/nowhere", 5],
    ["--enable_nof=true", 6],
  ] as const) {
    await master.start([flag]);
    assert.ok(versions().includes(version), `${flag}: ${versions()}`);
    await master.kill();
  }
  const newest = readdirSync(join(home, "store"))
    .filter((name) => name.startsWith("log-"))
    .sort()
    .at(-1) as string;
  const path = join(home, "store", newest);
  const bytes = readFileSync(path);
  bytes.writeUInt32LE(9, 8);
  const { writeFileSync } = await import("node:fs");
  writeFileSync(path, bytes);
  await assert.rejects(startMaster({ home }), /has format 9, this release reads up to 6/);
  mkdirSync(join(home, "done"), { recursive: true });
  removeHome(home);
});
