// The engine's operations, between two engines of one process over real sockets.
import assert from "node:assert/strict";
import { createServer } from "node:net";
import { test } from "node:test";
import { TransferEngine } from "../src/engine.ts";
import { alloc } from "../src/memory.ts";
import { INVALID_BATCH_ID, LOCAL_SEGMENT_ID } from "../src/status.ts";
import { eventually, MIB, randomBytes, startEngine } from "./parts.ts";

void test("a write and a read over tcp transfer every byte, in both forms and in batches", async () => {
  await using here = await startEngine();
  await using there = await startEngine();
  const source = randomBytes(3 * MIB + 17);
  const sink = new Uint8Array(source.length);
  const back = new Uint8Array(source.length);
  await here.registerLocalMemoryBatch([source, back]);
  const remote = await there.registerLocalMemory(sink);
  const target = await here.openSegment(there.getServerName());
  here.transferSync("WRITE", target, [{ local: source, remote }]);
  assert.deepEqual(sink, source);
  sink.fill(0);
  await here.transfer("WRITE", target, [{ local: source, remote }]);
  assert.deepEqual(sink, source);
  const pieces = Array.from({ length: Math.ceil(source.length / 5000) }, (_, i) => {
    const at = i * 5000;
    return { local: back.subarray(at, Math.min(at + 5000, back.length)), remote: remote + BigInt(at) };
  });
  await here.transfer("READ", target, pieces);
  assert.deepEqual(back, source);
  back.fill(0);
  here.transferSync("READ", target, pieces);
  assert.deepEqual(back, source);
});

void test("a batch of 10,000 requests completes, and may be freed without a status query", async () => {
  await using here = await startEngine();
  await using there = await startEngine();
  const source = randomBytes(10_000 * 512);
  const sink = new Uint8Array(source.length);
  await here.registerLocalMemory(source);
  const remote = await there.registerLocalMemory(sink);
  const targetID = await here.openSegment(there.getServerName());
  const batch = here.allocateBatchID(10_000);
  here.submitTransfer(
    batch,
    Array.from({ length: 10_000 }, (_, i) => ({
      opcode: "WRITE" as const,
      source: source.subarray(i * 512, i * 512 + 512),
      targetID,
      targetOffset: remote + BigInt(i * 512),
    })),
  );
  assert.equal(await here.waitBatch(batch), true);
  here.freeBatchID(batch);
  assert.deepEqual(sink, source);
});

void test("a batch takes no more requests than its size, and reports each of them", async () => {
  await using here = await startEngine();
  await using there = await startEngine();
  const source = randomBytes(4096);
  await here.registerLocalMemory(source);
  const remote = await there.registerLocalMemory(new Uint8Array(4096));
  const targetID = await here.openSegment(there.getServerName());
  const entry = { opcode: "WRITE" as const, source, targetID, targetOffset: remote };
  const batch = here.allocateBatchID(2);
  assert.throws(() => here.submitTransfer(batch, [entry, entry, entry]), { name: "TOO_MANY_REQUESTS" });
  here.submitTransfer(batch, [entry]);
  here.submitTransfer(batch, [entry]);
  assert.throws(() => here.submitTransfer(batch, [entry]), { name: "TOO_MANY_REQUESTS" });
  assert.equal(here.waitBatchSync(batch), true);
  assert.deepEqual(here.getTransferStatus(batch, 1), { status: "COMPLETED", transferredBytes: 4096n });
  assert.deepEqual(here.getBatchTransferStatus(batch), { status: "COMPLETED", transferredBytes: 8192n });
  assert.throws(() => here.getTransferStatus(batch, 2), { name: "INVALID_REQUEST" });
  here.freeBatchID(batch);
});

void test("handles that were freed or belong to another engine are refused with that reason", async () => {
  await using here = await startEngine();
  const batch = here.allocateBatchID(1);
  here.freeBatchID(batch);
  assert.throws(() => here.freeBatchID(batch), /freed before/);
  assert.throws(() => here.getBatchTransferStatus(batch), /freed before/);
  assert.throws(() => here.submitTransfer(12345n, []), /not allocated/);
  assert.throws(() => here.closeSegment(77n), /not an open segment/);
  await assert.rejects(here.checkSegmentStatus(77n), /not an open segment/);
  assert.equal(here.allocateBatchID(0), INVALID_BATCH_ID);
});

void test("a source that is not registered is refused on every path before anything is transferred", async () => {
  await using here = await startEngine({ transports: ["tcp", "shm"] });
  await using there = await startEngine({ transports: ["tcp", "shm"] });
  const remote = await there.registerLocalMemory(alloc(MIB));
  const target = await here.openSegment(there.getServerName());
  const stray = new Uint8Array(4096);
  for (const id of [target, LOCAL_SEGMENT_ID])
    for (const opcode of ["READ", "WRITE"] as const) {
      assert.throws(() => here.transferSync(opcode, id, [{ local: stray, remote }]), { name: "MEMORY_NOT_REGISTERED" });
      await assert.rejects(here.transfer(opcode, id, [{ local: stray, remote }]), { name: "MEMORY_NOT_REGISTERED" });
    }
});

void test("registration refuses overlapping, empty and resizable memory, and a failed batch registers nothing", async () => {
  await using here = await startEngine();
  const bytes = new Uint8Array(MIB);
  const start = await here.registerLocalMemory(bytes);
  assert.equal(here.checkOverlap(start + 100n, 1), true);
  assert.equal(here.checkOverlap(start + BigInt(MIB), 1), false);
  await assert.rejects(here.registerLocalMemory(bytes.subarray(10, 20)), { name: "MEMORY_OVERLAPS" });
  await assert.rejects(here.registerLocalMemory(new Uint8Array(0)), { name: "INVALID_REQUEST" });
  assert.throws(() => here.registerLocalMemorySync(new ArrayBuffer(8, { maxByteLength: 16 })), /resizable/);
  const fresh = new Uint8Array(4096);
  await assert.rejects(here.registerLocalMemoryBatch([fresh, bytes]), { name: "MEMORY_OVERLAPS" });
  await here.registerLocalMemory(fresh);
  await assert.rejects(here.unregisterLocalMemory(start + 1n), { name: "MEMORY_NOT_REGISTERED" });
  await here.unregisterLocalMemory(start);
  assert.equal(here.checkOverlap(start, MIB), false);
});

void test("memory whose buffer was transferred to another thread is refused at the next submit", async () => {
  await using here = await startEngine();
  const bytes = new Uint8Array(4096);
  const start = await here.registerLocalMemory(bytes);
  const moved = structuredClone(bytes, { transfer: [bytes.buffer] });
  assert.throws(() => here.transferSync("WRITE", LOCAL_SEGMENT_ID, [{ local: start, remote: start, length: 10 }]), /transferred to another thread/);
  await here.unregisterLocalMemory(start);
  await here.registerLocalMemory(moved);
});

void test("peers access neither unregistered memory nor memory that is not remote accessible, on any path", async () => {
  for (const transports of [["tcp"], ["tcp", "shm"]] as const) {
    await using here = await startEngine({ transports });
    await using there = await startEngine({ transports });
    const source = randomBytes(4096);
    await here.registerLocalMemory(source);
    const hidden = alloc(4096);
    const hiddenAt = await there.registerLocalMemory(hidden, { remoteAccessible: false });
    const open = alloc(4096);
    const openAt = await there.registerLocalMemory(open);
    const target = await here.openSegment(there.getServerName());
    here.transferSync("WRITE", target, [{ local: source, remote: openAt }]);
    assert.throws(() => here.transferSync("WRITE", target, [{ local: source, remote: hiddenAt }]), { name: "TRANSFER_FAILED" });
    await there.unregisterLocalMemory(openAt);
    open.fill(0);
    assert.throws(() => here.transferSync("WRITE", target, [{ local: source, remote: openAt }]), { name: "TRANSFER_FAILED" });
    await assert.rejects(here.transfer("READ", target, [{ local: source, remote: openAt }]), { name: "TRANSFER_FAILED" });
    assert.ok(open.every((byte) => byte === 0) && hidden.every((byte) => byte === 0));
  }
});

void test("a notification arrives when the batch completes, even if the sender never queries its status", async () => {
  await using here = await startEngine();
  await using there = await startEngine();
  const source = randomBytes(MIB);
  const sink = new Uint8Array(MIB);
  await here.registerLocalMemory(source);
  const remote = await there.registerLocalMemory(sink);
  const targetID = await here.openSegment(there.getServerName());
  const batch = here.allocateBatchID(1);
  here.submitTransferWithNotify(batch, [{ opcode: "WRITE", source, targetID, targetOffset: remote }], { name: "block 7", msg: "ready" });
  const got = await eventually(() => {
    const list = there.getNotifies();
    return list.length > 0 ? list : undefined;
  }, "the notification");
  assert.deepEqual(got, [{ name: "block 7", msg: "ready" }]);
  assert.deepEqual(sink, source);
  await here.sendNotifyByID(targetID, { name: "a", msg: "1" });
  await here.sendNotifyByName(there.getServerName(), { name: "b", msg: "2" });
  assert.deepEqual(there.getNotifies(), [
    { name: "a", msg: "1" },
    { name: "b", msg: "2" },
  ]);
});

void test("rpc_port is used, and a port in use is an error that names it", async () => {
  const blocker = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => blocker.once("listening", resolve));
  const { port } = blocker.address() as { port: number };
  const engine = new TransferEngine({ settings: { log_level: 0 } });
  await assert.rejects(engine.init({ metadata: "P2PHANDSHAKE", name: "127.0.0.1", host: "127.0.0.1", rpcPort: port }), new RegExp(`${port}.*in use`));
  await new Promise((resolve) => blocker.close(resolve));
  await engine.init({ metadata: "P2PHANDSHAKE", name: "127.0.0.1", host: "127.0.0.1", rpcPort: port });
  assert.equal(engine.getRpcPort(), port);
  assert.equal(engine.getServerName(), `127.0.0.1:${port}`);
  assert.equal(engine.getLocalIpAndPort(), `127.0.0.1:${port}`);
  await engine.freeEngine();
});

void test("closing a segment ends its handle, and uninstalling tcp ends access over tcp", async () => {
  await using here = await startEngine();
  await using there = await startEngine();
  const source = randomBytes(4096);
  await here.registerLocalMemory(source);
  const remote = await there.registerLocalMemory(new Uint8Array(4096));
  const target = await here.openSegment(there.getServerName());
  assert.equal(await here.openSegment(there.getServerName()), target);
  here.transferSync("WRITE", target, [{ local: source, remote }]);
  here.closeSegment(target);
  here.transferSync("WRITE", target, [{ local: source, remote }]);
  here.closeSegment(target);
  assert.throws(() => here.transferSync("WRITE", target, [{ local: source, remote }]), /not an open segment/);
  const again = await here.openSegment(there.getServerName());
  await there.uninstallTransport("tcp");
  assert.equal(there.numContexts(), 0);
  assert.throws(() => here.transferSync("WRITE", again, [{ local: source, remote }]), { name: "TRANSFER_FAILED" });
  await assert.rejects(here.checkSegmentStatus(again), { name: "TRANSPORT_UNAVAILABLE" });
  await there.installTransport("tcp");
  await here.syncSegmentCache();
  await here.checkSegmentStatus(again);
  here.transferSync("WRITE", again, [{ local: source, remote }]);
});

void test("a transport that this host does not support is refused, and no other replaces it", async () => {
  await using engine = await startEngine({ transports: [], settings: { fabric_provider: "nonesuch" } });
  await assert.rejects(engine.installTransport("rdma"), { name: "TRANSPORT_UNAVAILABLE" });
  await assert.rejects(engine.installTransport("carrier-pigeon" as "tcp"), /expected tcp, shm, rdma or nvmeof/);
  assert.equal(engine.getTransport("rdma"), undefined);
  assert.equal(engine.numContexts(), 0);
});

void test("the local segment copies within the process, even if ranges overlap", async () => {
  await using engine = await startEngine({ transports: [] });
  const bytes = randomBytes(MIB);
  const copy = bytes.slice();
  const start = await engine.registerLocalMemory(bytes);
  engine.transferSync("WRITE", LOCAL_SEGMENT_ID, [{ local: start, remote: start + 1000n, length: 500_000 }]);
  copy.copyWithin(1000, 0, 500_000);
  assert.deepEqual(bytes, copy);
  assert.equal(await engine.openSegment(engine.getServerName()), LOCAL_SEGMENT_ID);
});

void test("an engine that was freed, or never initialized, refuses every call with a message", async () => {
  const fresh = new TransferEngine({ settings: { log_level: 0 } });
  const ended = await startEngine();
  await ended.freeEngine();
  await ended.freeEngine();
  const memory = new Uint8Array(4096);
  for (const engine of [fresh, ended]) {
    await assert.rejects(engine.openSegment("127.0.0.1:1"), /init/);
    await assert.rejects(engine.registerLocalMemory(memory), /init/);
    await assert.rejects(engine.installTransport("tcp"), /init/);
    assert.throws(() => engine.transferSync("WRITE", LOCAL_SEGMENT_ID, [{ local: memory, remote: 1n }]), /not running/);
    await assert.rejects(engine.sendNotifyByName("x", { name: "", msg: "" }), /init/);
    assert.deepEqual(engine.getNotifies(), []);
    assert.equal(engine.getLocalIpAndPort(), "");
  }
  assert.throws(() => fresh.getMetadata().segmentKey("x") && fresh.getRpcPort(), /init/);
  assert.equal(await fresh.getMetadata().segmentDescriptor("127.0.0.1:1"), undefined);
  assert.throws(() => new TransferEngine({ settings: { colour: "red" } }), /no option colour/);
  assert.throws(() => new TransferEngine({ settings: { lanes_per_peer: 99 } }), /lanes_per_peer.*from 1 to 16/);
});

void test("freeing an engine ends transfers in flight, including those that other threads wait for", async () => {
  await using there = await startEngine();
  const here = await startEngine();
  const source = randomBytes(16 * MIB);
  await here.registerLocalMemory(source);
  const remote = await there.registerLocalMemory(new Uint8Array(16 * MIB));
  const target = await here.openSegment(there.getServerName());
  const flights = Array.from({ length: 16 }, () => here.transfer("WRITE", target, [{ local: source, remote }]));
  const freed = here.freeEngine();
  for (const one of await Promise.allSettled(flights)) if (one.status === "rejected") assert.match(String(one.reason), /stopping|closed|not running/);
  await freed;
});
