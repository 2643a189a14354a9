// Holders restore their objects to a master that lost its log: verified bytes, and nothing outdated.
import assert from "node:assert/strict";
import { closeSync, openSync, readdirSync, rmSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "@svc/harness/until.ts";
import { alloc } from "@svc/transfer/memory.ts";
import { openEngine } from "../src/client/session/transfer-engine.ts";
import type { RpcClient } from "../src/rpc/client.ts";
import { codes } from "../src/rpc/codes.ts";
import type { Holding, Segment } from "../src/rpc/shapes.ts";
import { plain } from "./calls.ts";
import { openClient, startClient } from "./client.ts";
import { startMaster, type TestMaster } from "./master.ts";

const MIB = 1 << 20;
const bytesOf = (key: string, sizeBytes = 4096) => Buffer.alloc(sizeBytes, `${key};`);

async function metric(master: TestMaster, name: string): Promise<number> {
  const text = await (await fetch(`${master.url}/metrics`)).text();
  const line = text.split("\n").find((each) => each.startsWith(`${name} `));
  return line === undefined ? 0 : Number(line.slice(name.length + 1));
}

/** Waits until every holder has requested changes twice, so that each remembers what existed at the call. */
async function remembered(master: TestMaster, holders: number): Promise<void> {
  const asked = () => metric(master, 'svc_store_rpc_items_total{operation="take_changes"}');
  const before = await asked();
  await until("holders ask for changes", async () => ((await asked()) >= before + 4 * holders ? true : undefined));
}

/** Ends the master and deletes everything that it stored. */
async function loseHome(master: TestMaster): Promise<void> {
  await master.kill();
  rmSync(join(master.home, "store"), { recursive: true });
}

void test("a master whose home was deleted gets every key of its holders back, with the bytes, replicas, groups, pins and layouts that were stored", async () => {
  await using master = await startMaster();
  await using first = await startClient(master, { segmentBytes: 64 * MIB });
  await using second = await startClient(master, { segmentBytes: 64 * MIB });
  await using client = await openClient(master, { timeoutMs: 60_000 });
  await using layout = await openClient(master, { fingerprint: "layout-1" });
  const keys = Array.from({ length: 400 }, (_, at) => `k${at}`);
  for (const key of keys) await client.put(key, bytesOf(key), key.endsWith("7") ? { replicas: 2 } : {});
  await client.put("grouped", bytesOf("grouped"), { group: "g", hardPin: true });
  await layout.put("laid", bytesOf("laid"));
  for (let at = 0; at < 50; at++) await client.upsert(`k${at}`, bytesOf(`k${at}`, 8192));
  for (let at = 390; at < 400; at++) await client.remove(`k${at}`, true);
  await remembered(master, 2);
  await loseHome(master);
  await master.start();
  const left = [...keys.slice(0, 390), "grouped"];
  await until("all keys are there", async () => ((await client.existsBatch(left)).every(Boolean) ? true : undefined));
  for (const key of left) assert.deepEqual(await client.get(key), bytesOf(key, keys.indexOf(key) < 50 && key !== "grouped" ? 8192 : 4096), key);
  assert.deepEqual(await layout.get("laid"), bytesOf("laid"));
  await using other = await openClient(master, { fingerprint: "layout-2" });
  assert.equal(await other.get("laid"), undefined);
  for (let at = 390; at < 400; at++) assert.equal(await client.exists(`k${at}`), false, "what was removed stays removed");
  assert.deepEqual((await client.replicas("k77")).map(({ endpoint }) => endpoint).sort(), [first.name, second.name].sort());
  await assert.rejects(client.upsert("grouped", bytesOf("x"), { group: "another" }), /group|-600|param/i);
  // Free memory around the restored objects is used for puts, and none of it twice.
  await until("puts find room", async () => ((await client.put("after", bytesOf("after"))) ? true : undefined));
  for (let at = 0; at < 200; at++) await client.put(`new-${at}`, bytesOf(`new-${at}`));
  for (const key of keys.slice(50, 390)) assert.deepEqual(await client.get(key), bytesOf(key), key);
  // The objects in the new log survive by themselves.
  await master.kill();
  await master.start();
  await until("holders are known", async () => ((await client.existsBatch(left)).every(Boolean) ? true : undefined));
  assert.equal(await metric(master, "svc_store_restored_keys_total"), 0);
});

void test("a master that is killed repeatedly while holders restore their objects has all of them in the end", async () => {
  await using master = await startMaster();
  await using _first = await startClient(master, { segmentBytes: 64 * MIB });
  await using _second = await startClient(master, { segmentBytes: 64 * MIB });
  await using client = await openClient(master, { timeoutMs: 60_000 });
  const keys = Array.from({ length: 2000 }, (_, at) => `k${at}`);
  const stored = await client.putBatch(keys.map((key) => ({ key, value: bytesOf(key) })));
  assert.ok(stored.every((each) => each === true));
  await remembered(master, 2);
  await loseHome(master);
  for (let round = 0; round < 5; round++) {
    await master.start();
    await sleep(200 * round);
    await master.kill();
  }
  await master.start();
  await until("all keys are there", async () => ((await client.existsBatch(keys)).every(Boolean) ? true : undefined));
  for (const key of keys) assert.deepEqual(await client.get(key), bytesOf(key), key);
});

void test("a log with damage in its middle loses nothing that holders remember", async () => {
  await using master = await startMaster();
  await using _holder = await startClient(master, { segmentBytes: 64 * MIB });
  await using client = await openClient(master, { timeoutMs: 60_000 });
  const keys = Array.from({ length: 300 }, (_, at) => `k${at}`);
  for (const key of keys) await client.put(key, bytesOf(key));
  await remembered(master, 1);
  await master.kill();
  const folder = join(master.home, "store");
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => /log-.*\.log$/.test(name));
  const path = join(folder, files[0] as string);
  const file = openSync(path, "r+");
  writeSync(file, Buffer.alloc(64, 0xff), 0, 64, Math.floor(statSync(path).size / 2));
  closeSync(file);
  await master.start();
  await until("all keys are there", async () => ((await client.existsBatch(keys)).every(Boolean) ? true : undefined));
  for (const key of keys) assert.deepEqual(await client.get(key), bytesOf(key), key);
});

void test("overwritten bytes, and keys that were stored again, are not restored", async () => {
  await using master = await startMaster();
  await using holder = await startClient(master, { segmentBytes: 64 * MIB });
  await using client = await openClient(master, { timeoutMs: 60_000 });
  for (const key of ["damaged", "whole"]) await client.put(key, bytesOf(key));
  await remembered(master, 1);
  await using engine = await openEngine({ localHostname: "127.0.0.1", metadata: "P2PHANDSHAKE", protocol: "tcp" });
  const [replica] = await client.replicas("damaged");
  assert.ok(replica !== undefined);
  const garbage = alloc(replica.sizeBytes).fill(0xee);
  await engine.registerLocalMemory(garbage, { remoteAccessible: false });
  await engine.transfer("WRITE", await engine.openSegment(replica.endpoint), [{ local: garbage, remote: replica.address }]);
  // The holder is frozen while the master restarts empty, and others store its key.
  await holder.freeze();
  await loseHome(master);
  await master.start();
  await using other = await startClient(master, { segmentBytes: 64 * MIB });
  await until("the other holder takes puts", async () => (await client.put("whole", bytesOf("newer"))) || undefined);
  await client.put("passing", bytesOf("passing"));
  await client.remove("passing", true);
  holder.thaw();
  await until("the holder is known again", async () => {
    const { segments } = (await (await fetch(`${master.url}/get_segments_detail`)).json()) as { segments: unknown[] };
    return segments.length === 2 ? true : undefined;
  });
  await remembered(master, 2);
  assert.deepEqual(await client.get("whole"), bytesOf("newer"));
  assert.deepEqual(
    (await client.replicas("whole")).map(({ endpoint }) => endpoint),
    [other.name],
  );
  assert.equal(await client.get("damaged"), undefined);
});

void test("a holder remembers as much as remembersBytes allows", async () => {
  await using master = await startMaster();
  await using _little = await startClient(master, { segmentBytes: 16 * MIB, remembersBytes: 20_000 });
  await using client = await openClient(master, { timeoutMs: 60_000 });
  const keys = Array.from({ length: 500 }, (_, at) => `k${at}`);
  await client.putBatch(keys.map((key) => ({ key, value: bytesOf(key) })));
  await remembered(master, 1);
  await loseHome(master);
  await master.start();
  await until("what it remembered is there", async () => ((await metric(master, "svc_store_restored_keys_total")) > 0 ? true : undefined));
  await remembered(master, 1);
  const found = (await client.existsBatch(keys)).filter(Boolean).length;
  assert.ok(found > 20 && found < 200, `${found} keys`);
});

const holders = ["11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"] as const;
const segmentOf = (at: number): Segment => ({
  id: `aaaaaaaa-0000-0000-0000-00000000000${at}`,
  name: `127.0.0.1:${9000 + at}`,
  base: BigInt(at + 1) << 32n,
  sizeBytes: 1_000_000n,
  endpoint: `127.0.0.1:${9000 + at}`,
  protocol: "tcp",
  hostID: "",
});

void test("of contradictory announcements the later one wins, and none takes bytes, keys or memory of another", async () => {
  await using master = await startMaster();
  const rpc = await master.rpc();
  const begin = (at: 0 | 1, lineage = 7n) => rpc.call("BeginRestore", holders[at], lineage, [segmentOf(at)]);
  const said = (at: number, key: string, offset: number, more: Partial<Holding> = {}): Holding => ({
    ...{ address: segmentOf(at).base + BigInt(offset), sizeBytes: 100n, asOf: 10n, checksum: 1n, softPinUntilMs: 0n },
    ...{ tenant: "default", key, fingerprint: "", group: "", dataType: 0, hardPin: false, ...more },
  });
  const tell = async (client: RpcClient, at: 0 | 1, ...holdings: Holding[]) =>
    (await client.call("RestoreObjects", holders[at], holdings, false)).map((each) => (each.ok ? 0 : each.code));
  const OUTSIDE = codes.SEGMENT_NOT_FOUND;
  assert.deepEqual(await tell(rpc, 0, said(0, "early", 0)), [codes.CLIENT_NOT_FOUND]);
  for (const at of [0, 1] as const) {
    const begun = await begin(at);
    assert.ok(begun.ok && begun.value.isWanted);
  }
  const start = await rpc.call("PutStart", holders[0], "any", 10n, plain, "");
  assert.deepEqual(start, { ok: false, code: codes.NO_AVAILABLE_HANDLE });
  assert.deepEqual(await tell(rpc, 0, said(0, "a", 0), said(0, "b", 100), said(0, "c", 500)), [0, 0, 0]);
  const refused: readonly (readonly [string, Holding, number])[] = [
    ["the same range for another key", said(0, "d", 0), codes.NO_AVAILABLE_HANDLE],
    ["a range across another", said(0, "d", 450), codes.NO_AVAILABLE_HANDLE],
    ["past the segment's end", said(0, "d", 999_950), codes.NO_AVAILABLE_HANDLE],
    ["an address that overflows", said(0, "d", 0, { address: 2n ** 64n - 1n, sizeBytes: 2n ** 63n }), OUTSIDE],
    ["a size that overflows", said(0, "d", 600, { sizeBytes: 2n ** 64n - 1n }), codes.NO_AVAILABLE_HANDLE],
    ["in another holder's segment", said(1, "d", 0), OUTSIDE],
    ["the same key twice in one holder", said(0, "a", 700), codes.REPLICA_ALREADY_EXISTS],
    ["another value of a key, as of an earlier record", said(0, "a", 800, { checksum: 2n, asOf: 9n }), codes.OBJECT_ALREADY_EXISTS],
    ["no key", said(0, "", 800), codes.INVALID_PARAMS],
    ["no bytes", said(0, "d", 800, { sizeBytes: 0n }), codes.INVALID_PARAMS],
  ];
  for (const [what, holding, code] of refused) assert.deepEqual(await tell(rpc, 0, holding), [code], what);
  // A second replica of the same bytes; a later value with another checksum; an earlier one.
  const outcomes = await tell(rpc, 1, said(1, "a", 0), said(1, "b", 100, { checksum: 9n, asOf: 20n }), said(1, "c", 200, { checksum: 9n, asOf: 5n }));
  assert.deepEqual(outcomes, [0, 0, codes.OBJECT_ALREADY_EXISTS]);
  const listed = await rpc.call("BatchGetReplicaList", ["a", "b", "c"], "");
  assert.deepEqual(
    listed.map((each) => (each.ok ? [each.value.replicas.length, each.value.checksum] : each.code)),
    [
      [2, 1n],
      [1, 9n],
      [1, 1n],
    ],
  );
  // An object that was stored and removed since is not restored by a holder that still remembers it.
  for (const at of [0, 1] as const) await rpc.call("RestoreObjects", holders[at], [], true);
  assert.ok((await rpc.call("PutStart", holders[0], "late", 10n, plain, "")).ok);
  assert.ok((await rpc.call("PutEnd", holders[0], { key: "late", checksum: undefined }, 0, "")).ok);
  assert.ok((await rpc.call("Remove", "late", true, "")).ok);
  await begin(1);
  assert.deepEqual(await tell(rpc, 1, said(1, "late", 5000)), [codes.OBJECT_NOT_FOUND]);
  await master.kill();
  await master.start();
  const again = await master.rpc();
  const begun = await again.call("BeginRestore", holders[1], 7n, [segmentOf(1)]);
  assert.ok(begun.ok && begun.value.isWanted);
  assert.deepEqual(await tell(again, 1, said(1, "late", 5000)), [codes.OBJECT_NOT_FOUND], "also after a restart");
  const same = await again.call("BeginRestore", holders[1], begun.value.lineage, [segmentOf(1)]);
  assert.deepEqual(same, { ok: true, value: { lineage: begun.value.lineage, isWanted: false } });
  rpc.close();
  again.close();
});
