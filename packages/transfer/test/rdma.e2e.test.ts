// The rdma transport over libfabric's tcp provider, which also works on a host without RDMA devices.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needsFabric, onFabric, rdmaCount } from "./fabric.ts";
import { MIB, randomBytes, sha256, startChild, startEngine } from "./parts.ts";

void test("one-sided writes and reads transfer every byte to another process, with keys and devices in its record", needsFabric, async () => {
  await using peer = await startChild(onFabric);
  await using engine = await startEngine(onFabric);
  assert.equal(engine.numContexts(), 1);
  const source = randomBytes(20 * MIB + 3);
  const back = new Uint8Array(source.length);
  await engine.registerLocalMemoryBatch([source, back]);
  const address = await peer.ask<string>({ op: "register", length: source.length });
  const remote = BigInt(address);
  const target = await engine.openSegment(peer.segment);
  assert.match(engine.explainPath(target, remote, 1), /^rdma:/);
  await engine.transfer("WRITE", target, [{ local: source, remote }]);
  assert.equal(await peer.ask({ op: "hash", address, length: source.length }), sha256(source));
  const pieces = Array.from({ length: 300 }, (_, i) => ({ local: back.subarray(i * 65_536, (i + 1) * 65_536), remote: remote + BigInt(i * 65_536) }));
  engine.transferSync("READ", target, pieces);
  assert.equal(sha256(back.subarray(0, 300 * 65_536)), sha256(source.subarray(0, 300 * 65_536)));
  assert.equal(rdmaCount(engine.metrics(), "requests"), 301);
  const record = JSON.parse((await engine.getMetadata().segmentDescriptor(peer.segment)) ?? "") as {
    protocol: string;
    devices: { name: string }[];
    buffers: { rkey: unknown[] }[];
  };
  assert.equal(record.protocol, "rdma");
  assert.deepEqual(
    record.devices.map(({ name }) => name),
    ["lo"],
  );
  assert.equal(record.buffers[0]?.rkey.length, 1);
});

void test("if rdma is requested and there is no device, no other transport is used instead", needsFabric, async () => {
  await using engine = await startEngine({ transports: [], filter: ["mlx5_0"], settings: { log_level: 0 } });
  await assert.rejects(engine.installTransport("rdma"), /no device of verbs;ofi_rxm, efa is here that the filter lets through/);
  assert.equal(engine.numContexts(), 0);
});

void test("a peer killed under rdma fails the requests in flight and later ones", needsFabric, async () => {
  await using peer = await startChild(onFabric);
  await using engine = await startEngine(onFabric);
  const source = randomBytes(MIB);
  await engine.registerLocalMemory(source);
  const remote = BigInt(await peer.ask<string>({ op: "register", length: MIB }));
  const target = await engine.openSegment(peer.segment);
  await engine.transfer("WRITE", target, [{ local: source, remote }]);
  await peer[Symbol.asyncDispose]();
  await assert.rejects(engine.transfer("WRITE", target, [{ local: source, remote }], 1500), { name: "TRANSFER_FAILED" });
});
