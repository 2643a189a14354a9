// Interoperability of our engine and Mooncake's, with every way of finding each other.
import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually, MIB, needsWheel, randomBytes, sha256, startEngine, startWheel } from "./parts.ts";

const SIZE = 64 * MIB;

/** `start` returns a metadata connection that both understand, and that lives as long as the test. */
export function wheelSuite(way: string, start: () => Promise<{ metadata: string; brand: string } & AsyncDisposable>): void {
  const engineFor = (name: string, where: { metadata: string; brand: string }) =>
    startEngine({ name, metadata: where.metadata, settings: { brand: where.brand, log_level: 0 } });
  const ownName = (way: string) => (way === "handshake" ? "127.0.0.1" : `ours-${process.pid}`);
  const theirName = (way: string) => (way === "handshake" ? "127.0.0.1:12345" : `theirs-${process.pid}`);

  void test(`${way}: bytes that we write to the Python engine arrive, and reading them back gives the same bytes`, needsWheel(), async () => {
    await using where = await start();
    await using peer = await startWheel(theirName(way), where.metadata);
    await using engine = await engineFor(ownName(way), where);
    const { code, address } = await peer.ask<{ code: number; address: string }>({ op: "register", length: SIZE });
    assert.equal(code, 0);
    const source = randomBytes(SIZE);
    const back = new Uint8Array(SIZE);
    await engine.registerLocalMemoryBatch([source, back]);
    const target = await engine.openSegment(peer.segment);
    await engine.checkSegmentStatus(target);
    await engine.transfer("WRITE", target, [{ local: source, remote: BigInt(address) }]);
    assert.equal(await peer.ask({ op: "hash", address, length: SIZE }), sha256(source));
    engine.transferSync("READ", target, [{ local: back, remote: BigInt(address) }]);
    assert.equal(sha256(back), sha256(source));
  });

  void test(`${way}: the Python engine refuses a range that it has not registered, and the message names peer and range`, needsWheel(), async () => {
    await using where = await start();
    await using peer = await startWheel(theirName(way), where.metadata);
    await using engine = await engineFor(ownName(way), where);
    const { address } = await peer.ask<{ address: string }>({ op: "register", length: MIB });
    const source = randomBytes(MIB);
    await engine.registerLocalMemory(source);
    const target = await engine.openSegment(peer.segment);
    const beyond = BigInt(address) + BigInt(MIB - 10);
    const says = new RegExp(`${peer.segment.replaceAll(".", "\\.")}.*0x${beyond.toString(16)}`);
    assert.throws(() => engine.transferSync("WRITE", target, [{ local: source, remote: beyond, length: 4096 }]), says);
    await assert.rejects(engine.transfer("READ", target, [{ local: source, remote: beyond, length: 4096 }]), says);
    engine.transferSync("WRITE", target, [{ local: source, remote: BigInt(address) }]);
    assert.equal(await peer.ask({ op: "hash", address, length: MIB }), sha256(source));
  });

  void test(`${way}: a notification and a probe reach the Python engine`, needsWheel(), async () => {
    await using where = await start();
    await using peer = await startWheel(theirName(way), where.metadata);
    await using engine = await engineFor(ownName(way), where);
    const { address } = await peer.ask<{ address: string }>({ op: "register", length: MIB });
    const source = randomBytes(MIB);
    await engine.registerLocalMemory(source);
    const target = await engine.openSegment(peer.segment);
    assert.equal(await engine.probePeerAlive(target), true);
    const batch = engine.allocateBatchID(1);
    engine.submitTransferWithNotify(batch, [{ opcode: "WRITE", source, targetID: target, targetOffset: BigInt(address) }], {
      name: "request-7",
      msg: "written",
    });
    const got = await eventually(async () => {
      const list = await peer.ask<[string, string][]>({ op: "notifies" });
      return list.length > 0 ? list : undefined;
    }, "the notification");
    assert.deepEqual(got, [["request-7", "written"]]);
    assert.equal(await engine.waitBatch(batch, 60_000), true);
    engine.freeBatchID(batch);
    assert.equal(await peer.ask({ op: "hash", address, length: MIB }), sha256(source));
  });

  void test(`${way}: the Python engine writes to us, reads from us, probes us, and is refused unregistered memory`, needsWheel(), async () => {
    await using where = await start();
    await using peer = await startWheel(theirName(way), where.metadata);
    await using engine = await engineFor(ownName(way), where);
    const memory = new Uint8Array(SIZE);
    const remote = (await engine.registerLocalMemory(memory)).toString();
    const { address: local } = await peer.ask<{ address: string }>({ op: "register", length: SIZE });
    const hash = await peer.ask<string>({ op: "fill", address: local, length: SIZE });
    const target = engine.getServerName();
    assert.equal(await peer.ask({ op: "first", target }), remote);
    assert.equal(await peer.ask({ op: "write", target, local, remote, length: SIZE }), 0);
    assert.equal(sha256(memory), hash);
    memory.set(randomBytes(MIB), 5 * MIB);
    assert.equal(await peer.ask({ op: "read", target, local, remote, length: SIZE }), 0);
    assert.equal(await peer.ask({ op: "hash", address: local, length: SIZE }), sha256(memory));
    assert.equal(await peer.ask({ op: "probe", target }), 0);
    const before = sha256(memory);
    const beyond = (BigInt(remote) + BigInt(SIZE - 10)).toString();
    assert.equal(await peer.ask({ op: "write", target, local, remote: beyond, length: 4096 }), -1);
    assert.equal(sha256(memory), before);
    assert.equal(await peer.ask({ op: "write_notify", target, local, remote, length: 4096, name: "from-python", msg: "done" }), 0);
    assert.deepEqual(
      await eventually(() => {
        const list = engine.getNotifies();
        return list.length > 0 ? list : undefined;
      }, "the notification"),
      [{ name: "from-python", msg: "done" }],
    );
  });
}
