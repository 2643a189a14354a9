// A disk's owner whose master refuses its files or has lost its log: the files stay until a leader says that no object has them.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { addressOf } from "@svc/transfer/memory.ts";
import { DiskContents } from "../src/client/disk/disk-contents.ts";
import { DiskWriter } from "../src/client/disk/disk-writer.ts";
import { UNKNOWN_TASK } from "../src/client/disk/keep.ts";
import { ObjectFiles, troubleOf } from "../src/client/disk/object-files.ts";
import { checksumOf } from "../src/client/put.ts";
import type { Session } from "../src/client/session/session.ts";
import { StoreClient } from "../src/client/store-client.ts";
import { codes } from "../src/rpc/codes.ts";
import { openClient } from "./client.ts";
import { startCluster } from "./ha-cluster.ts";
import { startMaster } from "./master.ts";
import { bytesOf, filesIn, makeFolder } from "./ssd.ts";
import { loseLogs } from "./ssd-loss.ts";

const MIB = 2 ** 20;
const keys = Array.from({ length: 8 }, (_, at) => `block-${at}`);
const OFFLOAD = ["--enable_offload=true", "--default_kv_lease_ttl=200"];

void test("an owner drops no file when a master stands by: each of its files is refused by name", async () => {
  await using folder = makeFolder();
  await using cluster = await startCluster({ flags: OFFLOAD });
  const leader = await cluster.inSync(1);
  const address = { master: cluster.address, clusterID: cluster.clusterID, timeoutMs: 30_000 };
  const ssd = { ...address, segmentBytes: 4 * MIB, ssdFolder: folder.path, ssdBytes: 64 * MIB };
  await using reader = await StoreClient.open(address);
  const owner = await StoreClient.open(ssd);
  for (const [at, key] of keys.entries()) {
    await reader.put(key, bytesOf(key, MIB));
    await until(`${key} is on disk`, () => (owner.disk?.files === at + 1 ? true : undefined));
  }
  await owner.close();

  const standby = cluster.nodes.find((node) => node !== leader);
  assert.ok(standby !== undefined);
  const rpc = await standby.rpc();
  const files = ObjectFiles.open(folder.path);
  try {
    const session = { clientID: owner.clientID, calls: { call: rpc.call.bind(rpc) } } as unknown as Session;
    const contents = await DiskContents.read(files);
    const writer = new DiskWriter({ session, diskID: owner.clientID, files, contents, capacityBytes: 64 * MIB });
    writer.announceAll();
    assert.equal(await writer.whenAnnounced(), false);
    assert.equal(contents.count, 8);
    const file = { tenant: "", key: "k", fingerprint: "", group: "", sizeBytes: 1n, file: 1n, task: 0, checksum: 0n, dataType: 0, hardPin: false };
    const refused = { ok: false as const, code: codes.UNAVAILABLE_IN_CURRENT_MODE };
    assert.deepEqual(await rpc.call("KeepFiles", owner.clientID, owner.clientID, [file, file]), [refused, refused]);
    assert.deepEqual(await rpc.call("BatchEvictDiskReplica", owner.clientID, ["a", "b", "c"], "", 2), [refused, refused, refused]);
  } finally {
    files.close();
    rpc.close();
  }
  assert.equal(filesIn(folder.path).length, 8);
});

void test("an owner that runs while its master restarts without its log announces every file to it", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: OFFLOAD });
  await using owner = await openClient(master, { segmentBytes: 4 * MIB, ssdFolder: folder.path, ssdBytes: 64 * MIB });
  await using reader = await openClient(master, { timeoutMs: 30_000 });
  for (const [at, key] of keys.entries()) {
    await reader.put(key, bytesOf(key, MIB));
    await until(`${key} is on disk`, () => (owner.disk?.files === at + 1 ? true : undefined), 1);
  }
  await master.kill();
  rmSync(join(master.home, "store"), { recursive: true, force: true });
  await master.start();
  for (const key of keys) await until(`${key} is there after the loss`, async () => (await reader.get(key))?.equals(bytesOf(key, MIB)) || undefined);
  // An object that memory restored first may have been stored a second time meanwhile; one of the two files is deleted.
  await until("each is there once", () => (owner.disk?.files === 8 && filesIn(folder.path).length === 8 ? true : undefined));
  for (const key of keys) assert.ok((await reader.get(key))?.equals(bytesOf(key, MIB)), key);
});

for (const [what, remembersBytes] of [
  ["alone", 0],
  ["next to memory", 64 * MIB],
] as const)
  void test(`a file ${what} that was complete when its master died with its log belongs to its object at the next master`, async (t) => {
    await loseLogs(2, remembersBytes, (text) => t.diagnostic(text));
  });

void test("a master accepts a file that it did not order only with its object's bytes, or if it certainly never had that object", async () => {
  await using master = await startMaster({ flags: OFFLOAD });
  await using writer = await openClient(master, { segmentBytes: 4 * MIB });
  const rpc = await master.rpc();
  const [client, diskID] = [randomUUID() as string, randomUUID() as string];
  const checksums = new Map<string, bigint>();
  try {
    for (const key of ["same", "other", "removed"]) {
      await writer.put(key, bytesOf(key, MIB));
      checksums.set(key, (await writer.stat(key))?.checksum ?? 0n);
    }
    await writer.remove("removed", true);
    const spec = { id: diskID, label: 0, isOurs: true, isEnabled: false, capacityBytes: 64n * BigInt(MIB), endpoint: "nowhere:1" };
    assert.ok((await rpc.call("MountDisk", client, spec)).ok);
    let number = 0n;
    const keep = async (key: string, task: number, checksum = checksums.get(key) ?? 7n) => {
      const about = { tenant: "", key, fingerprint: "", group: "", sizeBytes: BigInt(MIB), dataType: 0, hardPin: false };
      const [answer] = await rpc.call("KeepFiles", client, diskID, [{ ...about, file: ++number, task, checksum }]);
      return answer?.ok === true ? codes.OK : answer?.code;
    };
    for (const task of [12, UNKNOWN_TASK]) {
      assert.equal(await keep("other", task, 8n), codes.OBJECT_ALREADY_EXISTS);
      assert.notEqual(await keep("removed", task), codes.OK);
    }
    assert.equal(await keep("never", 12), codes.INVALID_WRITE);
    assert.equal(await keep("never", UNKNOWN_TASK), codes.OK);
    assert.equal(await keep("same", 12), codes.OK);
    assert.equal(await keep("same", UNKNOWN_TASK), codes.OBJECT_ALREADY_EXISTS, "one file of an object is enough");
  } finally {
    rpc.close();
  }
});

void test("a file is not created with other bytes than its object's, and one that could not be compared does not outlive its owner unless its master accepted it", async () => {
  await using folder = makeFolder();
  const bytes = bytesOf("k", MIB);
  const about = { tenant: "", key: "k", fingerprint: "", group: "", dataType: 0, hardPin: false };
  const checksum = checksumOf([{ address: addressOf(bytes), sizeBytes: MIB }]);
  const files = ObjectFiles.open(folder.path);
  try {
    await files.list();
    await assert.rejects(files.write(await files.number(), rangeOf(bytes), about, checksum + 1n), (error) => troubleOf(error) === "other");
    assert.deepEqual(filesIn(folder.path), []);
    const [compared, settled, unsettled] = [await files.number(), await files.number(), await files.number()];
    assert.equal(await files.write(compared, rangeOf(bytes), about, checksum), checksum);
    for (const file of [settled, unsettled]) assert.equal(await files.write(file, rangeOf(bytes), about, undefined), checksum);
    await files.settle(settled);
    assert.equal(filesIn(folder.path).length, 3);
    files.close();
    const again = await until("the folder is free", () => openOr(folder.path));
    assert.deepEqual(await again.list(), [compared, settled]);
    again.close();
    assert.equal(filesIn(folder.path).length, 2);
  } finally {
    files.close();
  }
});

const rangeOf = (bytes: Buffer) => BigUint64Array.of(addressOf(bytes), 0n, BigInt(bytes.length));

/** Returns undefined while the threads of a closed instance still run. */
function openOr(folder: string): ObjectFiles | undefined {
  try {
    return ObjectFiles.open(folder);
  } catch {
    return undefined;
  }
}
