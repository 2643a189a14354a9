// Release of resources: connections of closed segments, uninstalled transports, handles of other engines.
import assert from "node:assert/strict";
import { readdirSync, readlinkSync } from "node:fs";
import { test } from "node:test";
import { alloc } from "../src/memory.ts";
import { INVALID_SEGMENT_ID } from "../src/status.ts";
import { eventually, MIB, randomBytes, sha256, startChild, startEngine } from "./parts.ts";

function sockets(): number {
  return readdirSync("/proc/self/fd").filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).startsWith("socket:");
    } catch {
      return false;
    }
  }).length;
}

void test("the last closeSegment drops the connections to the peer, and opening it again creates new ones", async () => {
  await using peer = await startChild();
  await using engine = await startEngine();
  const source = randomBytes(8 * MIB);
  await engine.registerLocalMemory(source);
  const remote = BigInt(await peer.ask<string>({ op: "register", length: source.length }));
  const before = sockets();
  for (let round = 0; round < 3; round++) {
    const target = await engine.openSegment(peer.segment);
    assert.equal(await engine.openSegment(peer.segment), target);
    await engine.transfer("WRITE", target, [{ local: source, remote }]);
    engine.transferSync("WRITE", target, [{ local: source, remote }]);
    assert.ok(sockets() > before);
    engine.closeSegment(target);
    engine.transferSync("WRITE", target, [{ local: source, remote }]);
    engine.closeSegment(target);
    assert.throws(() => engine.transferSync("WRITE", target, [{ local: source, remote }]), /not an open segment/);
    await eventually(() => (sockets() <= before ? true : undefined), "the connections are closed");
  }
});

void test("uninstalling shm at either end leaves tcp, and installing it again restores shm", async () => {
  const transports = ["tcp", "shm"] as const;
  await using here = await startEngine({ transports });
  await using there = await startEngine({ transports });
  const source = randomBytes(MIB);
  await here.registerLocalMemory(source);
  const sink = alloc(MIB);
  const remote = await there.registerLocalMemory(sink);
  const target = await here.openSegment(there.getServerName());
  const write = async (path: string) => {
    await here.syncSegmentCache();
    assert.match(here.explainPath(target, remote, MIB), new RegExp(`^${path}:`));
    sink.fill(0);
    here.transferSync("WRITE", target, [{ local: source, remote }]);
    assert.deepEqual(sink, source);
  };
  await write("shm");
  for (const engine of [here, there]) {
    await engine.uninstallTransport("shm");
    assert.equal(engine.getTransport("shm"), undefined);
    assert.equal(engine.numContexts(), 1);
    await write("tcp");
    await engine.installTransport("shm");
    await write("shm");
  }
  await assert.rejects(here.uninstallTransport("rdma"), /not installed/);
});

void test("handles of one engine are refused by another", async () => {
  await using one = await startEngine();
  await using other = await startEngine();
  const source = randomBytes(4096);
  await one.registerLocalMemory(source);
  await other.registerLocalMemory(new Uint8Array(4096));
  // The generations differ, because one engine has allocated this slot twice.
  one.freeBatchID(one.allocateBatchID(1));
  const batch = one.allocateBatchID(1);
  for (const call of [
    () => other.freeBatchID(batch),
    () => other.getBatchTransferStatus(batch),
    () => other.getTransferStatus(batch, 0),
    () => other.waitBatchSync(batch),
    () => other.submitTransfer(batch, [{ opcode: "WRITE", source, targetID: 0n, targetOffset: 1n }]),
  ])
    assert.throws(call, /not allocated, or was freed before/);
  const target = await one.openSegment(other.getServerName());
  assert.throws(() => other.closeSegment(target), /not an open segment/);
  await assert.rejects(other.probePeerAlive(target), /not an open segment/);
  await assert.rejects(other.sendNotifyByID(target, { name: "n", msg: "m" }), { name: "METADATA_UNAVAILABLE" });
  one.freeBatchID(batch);
});

void test("a batch of 10,000 requests completes over mapped memory and between processes, too", async () => {
  const transports = ["tcp", "shm"] as const;
  await using peer = await startChild({ transports });
  await using engine = await startEngine({ transports });
  const source = randomBytes(10_000 * 300);
  await engine.registerLocalMemory(source);
  for (const shared of [true, false]) {
    const address = await peer.ask<string>({ op: "register", length: source.length, shared });
    const targetID = await engine.openSegment(peer.segment);
    await engine.syncSegmentCache();
    assert.match(engine.explainPath(targetID, BigInt(address), 1), shared ? /^shm:/ : /^process_vm:/);
    const batch = engine.allocateBatchID(10_000);
    engine.submitTransfer(
      batch,
      Array.from({ length: 10_000 }, (_, i) => ({
        opcode: "WRITE" as const,
        source: source.subarray(i * 300, i * 300 + 300),
        targetID,
        targetOffset: BigInt(address) + BigInt(i * 300),
      })),
    );
    assert.equal(await engine.waitBatch(batch), true);
    assert.deepEqual(engine.getBatchTransferStatus(batch), { status: "COMPLETED", transferredBytes: BigInt(source.length) });
    engine.freeBatchID(batch);
    assert.equal(await peer.ask({ op: "hash", address, length: source.length }), sha256(source));
  }
});

void test("requests to a peer that is stopped during a transfer complete when it continues, with every byte in its place", async () => {
  await using peer = await startChild();
  await using engine = await startEngine();
  const source = randomBytes(64 * MIB);
  await engine.registerLocalMemory(source);
  const address = await peer.ask<string>({ op: "register", length: source.length });
  const target = await engine.openSegment(peer.segment);
  const pieces = Array.from({ length: 256 }, (_, i) => ({
    local: source.subarray(i * 262_144, (i + 1) * 262_144),
    remote: BigInt(address) + BigInt(i * 262_144),
  }));
  const served = () => Number(/^svc_transfer_requests_total\{path="tcp"\} (\d+)$/m.exec(engine.metrics())?.[1]);
  const submit = () => {
    const batch = engine.allocateBatchID(pieces.length);
    engine.submitTransfer(
      batch,
      pieces.map(({ local, remote }) => ({ opcode: "WRITE" as const, source: local, targetID: target, targetOffset: remote })),
    );
    return batch;
  };
  for (let round = 0; round < 3; round++) {
    // The peer stops during the first batch, before it has acknowledged anything of the second.
    const first = submit();
    await peer.freeze();
    const second = submit();
    assert.equal(await engine.waitBatch(second, 100), false, "a stopped peer acknowledges nothing");
    assert.equal(engine.getBatchTransferStatus(second).status, "WAITING");
    assert.throws(() => engine.freeBatchID(second), { name: "TRANSFER_BUSY" });
    peer.thaw();
    for (const batch of [first, second]) {
      assert.equal(await engine.waitBatch(batch, 60_000), true);
      assert.equal(engine.getBatchTransferStatus(batch).status, "COMPLETED");
      engine.freeBatchID(batch);
    }
  }
  assert.equal(served(), 3 * 2 * 256);
  assert.equal(await peer.ask({ op: "hash", address, length: source.length }), sha256(source));
});

void test("a segment that cannot be opened gives tryOpenSegment the invalid handle, and openSegment a failure with the reason", async () => {
  await using engine = await startEngine();
  await using peer = await startEngine();
  assert.equal(await engine.tryOpenSegment("127.0.0.1:1"), INVALID_SEGMENT_ID);
  await assert.rejects(engine.openSegment("127.0.0.1:1"), /127\.0\.0\.1:1/);
  assert.throws(() => engine.openSegmentSync(""), /the name is empty/);
  assert.equal(await engine.tryOpenSegment(peer.getServerName()), engine.openSegmentSync(peer.getServerName()));
});
