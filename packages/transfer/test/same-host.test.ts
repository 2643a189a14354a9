// Engines on one host: mapped memory, copies between processes, and the safety of both.
import assert from "node:assert/strict";
import { test } from "node:test";
import { alloc, openShm, unlinkShm } from "../src/memory.ts";
import { eventually, MIB, randomBytes, sha256, startChild, startEngine } from "./parts.ts";

const transports = ["tcp", "shm"] as const;
const counter = (text: string, name: string, path: string) => Number(new RegExp(`^${name}\\{path="${path}"\\} (\\d+)$`, "m").exec(text)?.[1]);

for (const [shared, path] of [
  [true, "shm"],
  [false, "process_vm"],
] as const) {
  void test(`bytes go over ${path} to ${shared ? "shared" : "ordinary"} memory of another process, and the metrics show it`, async () => {
    await using peer = await startChild({ transports });
    await using engine = await startEngine({ transports });
    const source = randomBytes(16 * MIB);
    const back = new Uint8Array(source.length);
    await engine.registerLocalMemoryBatch([source, back]);
    const address = await peer.ask<string>({ op: "register", length: source.length, shared });
    const remote = BigInt(address);
    const target = await engine.openSegment(peer.segment);
    assert.match(engine.explainPath(target, remote, 4096), new RegExp(`^${path}:`));
    engine.transferSync("WRITE", target, [{ local: source, remote }]);
    assert.equal(await peer.ask({ op: "hash", address, length: source.length }), sha256(source));
    const pieces = Array.from({ length: 4096 }, (_, i) => ({ local: back.subarray(i * 4096, i * 4096 + 4096), remote: remote + BigInt(i * 4096) }));
    await engine.transfer("READ", target, pieces);
    assert.equal(sha256(back), sha256(source));
    assert.equal(counter(engine.metrics(), "svc_transfer_requests_total", path), 4097);
    assert.equal(counter(engine.metrics(), "svc_transfer_requests_total", "tcp"), 0);
  });

  void test(`memory that a peer unregistered cannot be accessed over ${path} at once`, async () => {
    await using peer = await startChild({ transports });
    await using engine = await startEngine({ transports });
    const source = randomBytes(4096);
    await engine.registerLocalMemory(source);
    const address = await peer.ask<string>({ op: "register", length: 4096, shared });
    const target = await engine.openSegment(peer.segment);
    engine.transferSync("WRITE", target, [{ local: source, remote: BigInt(address) }]);
    await peer.ask({ op: "unregister", address });
    const before = await peer.ask({ op: "fill", address, length: 4096 });
    assert.throws(() => engine.transferSync("WRITE", target, [{ local: source, remote: BigInt(address) }]), { name: "TRANSFER_FAILED" });
    assert.equal(await peer.ask({ op: "hash", address, length: 4096 }), before);
    assert.ok(counter(engine.metrics(), "svc_transfer_fallbacks_total", path) >= 1);
  });

  void test(`a peer that is gone is an error over ${path}, and another process never replaces it`, async () => {
    await using peer = await startChild({ transports });
    await using engine = await startEngine({ transports });
    const source = randomBytes(4096);
    await engine.registerLocalMemory(source);
    const remote = BigInt(await peer.ask<string>({ op: "register", length: 4096, shared }));
    const target = await engine.openSegment(peer.segment);
    engine.transferSync("WRITE", target, [{ local: source, remote }]);
    await peer[Symbol.asyncDispose]();
    await eventually(() => {
      try {
        engine.transferSync("WRITE", target, [{ local: source, remote }]);
        return undefined;
      } catch {
        return true;
      }
    }, "the peer's end is noticed");
  });
}

void test("a batch into mapped memory fails if its peer is killed during it, although the mapping outlives the peer", async () => {
  await using peer = await startChild({ transports });
  await using engine = await startEngine({ transports });
  const source = randomBytes(16 * MIB);
  await engine.registerLocalMemory(source);
  const remote = BigInt(await peer.ask<string>({ op: "register", length: source.length, shared: true }));
  const target = await engine.openSegment(peer.segment);
  // The copies take a second or more, so the peer is gone long before they end.
  const batch = engine.transfer(
    "WRITE",
    target,
    Array.from({ length: 600 }, () => ({ local: source, remote })),
  );
  await Promise.all([assert.rejects(batch, { name: "TRANSFER_FAILED" }), peer[Symbol.asyncDispose]()]);
});

void test("disabling process_vm leaves tcp for ordinary memory", async () => {
  await using peer = await startChild({ transports });
  await using engine = await startEngine({ transports, settings: { process_vm: false, log_level: 0 } });
  const source = randomBytes(MIB);
  await engine.registerLocalMemory(source);
  const address = await peer.ask<string>({ op: "register", length: MIB });
  const target = await engine.openSegment(peer.segment);
  assert.match(engine.explainPath(target, BigInt(address), 1), /^tcp: .*process_vm \(switched off/);
  engine.transferSync("WRITE", target, [{ local: source, remote: BigInt(address) }]);
  assert.equal(await peer.ask({ op: "hash", address, length: MIB }), sha256(source));
});

void test("a named shared memory object is the same memory for all who open it, and has a size", () => {
  const name = `svc-test-${process.pid}`;
  try {
    const made = openShm(name, 8192, true);
    const seen = openShm(name, 8192);
    made[100] = 7;
    assert.equal(seen[100], 7);
    assert.throws(() => openShm(name, 16384), /it has 8192/);
    assert.throws(() => openShm(`${name}-other`, 1), /create it first/);
    assert.throws(() => openShm("a/b", 1, true), /without slashes/);
  } finally {
    assert.equal(unlinkShm(name), true);
  }
  assert.throws(() => alloc(0), { name: "INVALID_REQUEST" });
});
