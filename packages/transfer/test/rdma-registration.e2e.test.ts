// Guarantees of registration over rdma: a device serves peers only accessible memory, and takes only registered sources.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Opcode } from "../src/status.ts";
import { needsFabric, onFabric, rdmaCount } from "./fabric.ts";
import { randomBytes, sha256, startChild, startEngine } from "./parts.ts";
import { startHttp } from "./services.ts";

const LENGTH = 65_536;
type Published = { buffers: { addr: number; length: number; rkey: number[] }[] };

void test("memory that is not remote accessible has no key in the record, and rdma takes no request for it", needsFabric, async () => {
  await using peer = await startChild(onFabric);
  await using engine = await startEngine(onFabric);
  const local = randomBytes(LENGTH);
  await engine.registerLocalMemory(local);
  const open = await peer.ask<string>({ op: "register", length: LENGTH });
  const hidden = await peer.ask<string>({ op: "register", length: LENGTH, remoteAccessible: false });
  const before = await peer.ask({ op: "fill", address: hidden, length: LENGTH });
  const target = await engine.openSegment(peer.segment);
  const record = JSON.parse((await engine.getMetadata().segmentDescriptor(peer.segment)) ?? "") as Published;
  assert.deepEqual(
    record.buffers.map(({ addr }) => BigInt(addr)),
    [BigInt(open)],
  );
  for (const opcode of ["WRITE", "READ"] as const) {
    await assert.rejects(engine.transfer(opcode, target, [{ local, remote: BigInt(hidden) }]), /no path serves it/);
    assert.throws(() => engine.transferSync(opcode, target, [{ local, remote: BigInt(hidden) }]), { name: "TRANSFER_FAILED" });
  }
  assert.equal(await peer.ask({ op: "hash", address: hidden, length: LENGTH }), before);
  engine.transferSync("WRITE", target, [{ local, remote: BigInt(open) }]);
  assert.equal(await peer.ask({ op: "hash", address: open, length: LENGTH }), sha256(local));
});

void test("a peer that forges a record and guesses the key reaches neither closed memory nor bytes beyond open memory", needsFabric, async () => {
  await using service = await startHttp();
  // Without a heartbeat the forged record is not overwritten.
  const settings = { ...onFabric.settings, heartbeat_ms: 0, lease_ms: 0, transfer_timeout_ms: 10_000 };
  await using peer = await startChild({ ...onFabric, metadata: service.metadata, name: "keeper", settings });
  const open = await peer.ask<string>({ op: "register", length: LENGTH });
  const hidden = await peer.ask<string>({ op: "register", length: LENGTH, remoteAccessible: false });
  const before = await peer.ask({ op: "fill", address: hidden, length: LENGTH });
  const record = JSON.parse((await service.get("svc/ram/keeper")) ?? "") as Published;
  const key = record.buffers[0]?.rkey[0] ?? 0;
  await using engine = await startEngine({ ...onFabric, metadata: service.metadata, name: "thief", settings });
  const local = randomBytes(LENGTH);
  await engine.registerLocalMemory(local);
  const target = await engine.openSegment("keeper");
  const write = (remote: string) => engine.transfer("WRITE", target, [{ local, remote: BigInt(remote) }]);
  await write(open);
  const forge = async (addr: string, rkey: number) => {
    record.buffers = [{ addr: Number(addr), length: 2 * LENGTH, rkey: [rkey] }];
    await service.put("svc/ram/keeper", JSON.stringify(record));
    await engine.syncSegmentCache("keeper");
  };
  const refused = async (opcode: Opcode, remote: bigint, what: string) => {
    const failures = rdmaCount(engine.metrics(), "failures");
    await assert.rejects(engine.transfer(opcode, target, [{ local, remote }]), { name: "TRANSFER_FAILED" }, `${opcode} ${what}`);
    assert.equal(rdmaCount(engine.metrics(), "failures"), failures + 1, "the device was asked, and refused");
  };
  for (const opcode of ["WRITE", "READ"] as const) {
    // This provider numbers its keys, so the hidden buffer's key follows that of the published one.
    await forge(hidden, key + 1);
    await refused(opcode, BigInt(hidden), "with the key of hidden memory");
    await forge(open, key);
    await refused(opcode, BigInt(open) + 1n, "past the end of open memory");
  }
  assert.equal(await peer.ask({ op: "hash", address: hidden, length: LENGTH }), before);
  await write(open);
  assert.equal(await peer.ask({ op: "hash", address: open, length: LENGTH }), sha256(local));
});

void test("a source that is not completely registered is refused over rdma before a device sees it", needsFabric, async () => {
  await using peer = await startChild(onFabric);
  await using engine = await startEngine(onFabric);
  const area = randomBytes(2 * LENGTH);
  const half = area.subarray(0, LENGTH);
  const start = await engine.registerLocalMemory(half);
  const address = await peer.ask<string>({ op: "register", length: 2 * LENGTH });
  const before = await peer.ask({ op: "fill", address, length: 2 * LENGTH });
  const target = await engine.openSegment(peer.segment);
  const remote = BigInt(address);
  const refused = { name: "MEMORY_NOT_REGISTERED" };
  for (const local of [randomBytes(4096), area, area.subarray(LENGTH - 1, LENGTH + 1), area.subarray(LENGTH)])
    for (const opcode of ["WRITE", "READ"] as const) {
      await assert.rejects(engine.transfer(opcode, target, [{ local, remote }]), refused);
      assert.throws(() => engine.transferSync(opcode, target, [{ local, remote }]), refused);
    }
  // With one bad source, no request of the batch starts.
  await assert.rejects(
    engine.transfer("WRITE", target, [
      { local: half, remote },
      { local: area, remote },
    ]),
    refused,
  );
  assert.equal(await peer.ask({ op: "hash", address, length: 2 * LENGTH }), before);
  engine.transferSync("WRITE", target, [{ local: half, remote }]);
  assert.equal(await peer.ask({ op: "hash", address, length: LENGTH }), sha256(half));
  await engine.unregisterLocalMemory(start);
  assert.throws(() => engine.transferSync("WRITE", target, [{ local: half, remote }]), refused);
  assert.equal(rdmaCount(engine.metrics(), "requests"), 1);
});
