// The master's limits: bytes for each key, idle connections, invalid frames, eviction, a full disk.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "@svc/harness/until.ts";
import { REQUEST_BYTES, requestHead } from "../src/rpc/frame.ts";
import { functionID } from "../src/rpc/operations.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { startMaster, type TestMaster } from "./master.ts";

const residentBytes = (pid: number) => Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024;
const metric = async (master: TestMaster, name: string) =>
  Number(new RegExp(`^${name} (\\S+)$`, "m").exec(await (await fetch(`${master.url}/metrics`)).text())?.[1]);
const BATCH = 500;

async function load(master: TestMaster, from: number, to: number, sizeBytes: bigint): Promise<void> {
  const rpc = await master.rpc();
  for (let at = from; at < to; at += BATCH) {
    const keys = Array.from({ length: BATCH }, (_, index) => `key-${String(at + index).padStart(36, "0")}`);
    const begun = await rpc.call(
      "BatchPutStart",
      clientID,
      keys,
      keys.map(() => sizeBytes),
      plain,
      "",
    );
    assert.ok(begun.every((outcome) => outcome.ok));
    const metas = keys.map((key) => ({ key, checksum: undefined }));
    assert.ok((await rpc.call("BatchPutEnd", clientID, metas, 4, "")).every((outcome) => outcome.ok));
  }
  rpc.close();
}

void test("a key of 40 bytes costs the master at most 200 bytes", async () => {
  await using master = await startMaster({ flags: ["--client_ttl=600s", "--store.suspect_after_ms=600000"] });
  const rpc = await master.rpc();
  await rpc.call("MountSegment", segmentOf(1, 1n << 40n), clientID);
  const [first, count] = [10_000, 150_000];
  await load(master, 0, first, 4096n);
  const before = residentBytes(master.pid);
  await load(master, first, first + count, 4096n);
  assert.equal(await metric(master, "svc_store_keys"), first + count);
  const perKey = (residentBytes(master.pid) - before) / count;
  assert.ok(perKey <= 200, `${perKey} bytes for each of ${count} keys`);
});

void test("10,000 connections that send nothing, or half a frame, stay within a bound, and others are answered", async () => {
  await using master = await startMaster({ flags: ["--store.half_frame_timeout_seconds=3"] });
  const rpc = await master.rpc();
  await rpc.call("ServiceReady");
  const before = residentBytes(master.pid);
  const sockets: Socket[] = [];
  const count = 10_000;
  for (let at = 0; at < count; at++) {
    const socket = connect(master.rpcPort, "127.0.0.1");
    socket.on("error", () => {});
    sockets.push(socket);
    if (at % 100 === 99) await new Promise((resolve) => socket.once("connect", resolve));
  }
  await until("all are accepted", async () => ((await metric(master, "svc_store_rpc_connections")) > count ? true : undefined));
  const grown = (residentBytes(master.pid) - before) / count;
  assert.ok(grown <= 4096, `${grown} bytes for each silent connection`);
  for (const socket of sockets.slice(0, 1000)) socket.write(requestHead(1, 5, 1000).subarray(0, REQUEST_BYTES - 3));
  assert.ok((await rpc.call("ServiceReady")).ok);
  await until("half frames end their connections", async () => ((await metric(master, "svc_store_rpc_connections")) <= count - 999 ? true : undefined));
  assert.ok((await rpc.call("ServiceReady")).ok);
  for (const socket of sockets) socket.destroy();
  rpc.close();
});

void test("a large frame takes only the memory of its received part, is answered once it is complete, and is freed", async () => {
  await using master = await startMaster();
  const buffered = () => metric(master, "svc_store_rpc_buffered_bytes");
  const size = 60 * 1024 * 1024;
  const part = 10 * 1024 * 1024;
  const socket = connect(master.rpcPort, "127.0.0.1");
  const answers: Buffer[] = [];
  socket.on("data", (bytes) => answers.push(bytes));
  socket.on("error", () => {});
  const small = Buffer.concat([requestHead(1, 12345, 3), Buffer.from("abc")]);
  const begun = Buffer.concat([small, requestHead(2, 12345, size), Buffer.alloc(part)]);
  socket.write(begun);
  const held = await until("the part is there", async () => {
    const now = await buffered();
    return now >= part ? now : undefined;
  });
  assert.ok(held < part * 1.1, `${held} bytes are counted`);
  // The beginning of another frame follows in the same write.
  socket.write(Buffer.concat([Buffer.alloc(size - part), requestHead(3, 12345, size).subarray(0, REQUEST_BYTES - 5)]));
  const isAnswered = (seq: number) => Buffer.concat(answers).includes(Buffer.from(requestHead(seq, 0, 0).subarray(4, 8)));
  await until("both are answered", () => (isAnswered(1) && isAnswered(2) ? true : undefined));
  await until("nothing is kept", async () => ((await buffered()) < part / 10 ? true : undefined));
  socket.destroy();
});

void test("whatever is sent to the RPC port, the master answers others", async () => {
  await using master = await startMaster({ flags: ["--store.max_frame_bytes=100000"] });
  const exist = functionID("svc::WrappedMasterService", "ExistKey");
  const pieces: Buffer[] = [
    Buffer.from("GET / HTTP/1.1\r\n\r\n"),
    requestHead(1, exist, 0xffff_ffff),
    requestHead(1, exist, 100_001),
    Buffer.concat([requestHead(1, exist, 9), Buffer.alloc(9, 0xff)]),
    Buffer.concat([requestHead(1, 12345, 3), Buffer.from("abc")]),
    Buffer.alloc(100_000, 21),
  ];
  for (let round = 0; round < 50; round++) pieces.push(Buffer.from(Array.from({ length: 200 }, () => Math.floor(Math.random() * 256))));
  for (const piece of pieces) {
    const socket = connect(master.rpcPort, "127.0.0.1");
    socket.on("error", () => {});
    socket.end(piece);
    await new Promise((resolve) => socket.once("connect", resolve));
  }
  const rpc = await master.rpc();
  assert.deepEqual(await rpc.call("ExistKey", "k", ""), { ok: true, value: false });
  await assert.rejects(rpc.send("ExistKey", Buffer.from([1, 2, 3, 4, 0])), /ExistKey: expected a client of Mooncake 0\.3\.13 and 0\.3\.14.*got type hash/);
  assert.match(master.log(), /max_frame_bytes/);
  rpc.close();
});

void test("a full store evicts objects for puts, and spares leased ones", async () => {
  await using master = await startMaster({ flags: ["--client_ttl=600s", "--store.suspect_after_ms=600000", "--default_kv_lease_ttl=600s"] });
  const rpc = await master.rpc();
  await rpc.call("MountSegment", segmentOf(1, 1_000_000n), clientID);
  const put = async (key: string) => {
    const begun = await rpc.call("PutStart", clientID, key, 1000n, plain, "");
    if (begun.ok) await rpc.call("PutEnd", clientID, { key, checksum: undefined }, 4, "");
    return begun.ok;
  };
  assert.ok(await put("leased"));
  assert.ok((await rpc.call("GetReplicaList", "leased", "")).ok);
  let failed = 0;
  for (let at = 0; at < 5000; at++) {
    if (!(await put(`key-${at}`))) {
      failed++;
      await sleep(20);
    }
  }
  assert.ok(failed < 1500, `${failed} of 5000 puts found no room`);
  assert.ok((await metric(master, "svc_store_evicted_keys_total")) > 3000);
  assert.deepEqual(await rpc.call("ExistKey", "leased", ""), { ok: true, value: true });
  rpc.close();
});

void test("patterns that would keep a backtracking engine busy for years are answered at once", async () => {
  await using master = await startMaster();
  const rpc = await master.rpc();
  await rpc.call("MountSegment", segmentOf(1, 1_000_000n), clientID);
  const key = "a".repeat(60);
  await rpc.call("PutStart", clientID, key, 10n, plain, "");
  await rpc.call("PutEnd", clientID, { key, checksum: undefined }, 4, "");
  assert.deepEqual(await rpc.call("RemoveByRegex", "^(a+)+!$", true, ""), { ok: true, value: 0n });
  assert.deepEqual(await rpc.call("RemoveByRegex", "(?=a)a", true, ""), { ok: false, code: -600 });
  assert.deepEqual(await rpc.call("RemoveByRegex", "^a+$", true, ""), { ok: true, value: 1n });
  rpc.close();
});
