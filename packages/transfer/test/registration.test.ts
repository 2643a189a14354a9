// Guarantees of registration: memory is kept alive, access is as specified, and publication happens on request.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { eventually, MIB, randomBytes, startChild, startEngine } from "./parts.ts";
import { startHttp } from "./services.ts";

const buffersOf = (record: string | undefined) => (JSON.parse(record ?? "{}") as { buffers: { name: string; addr: number; length: number }[] }).buffers;

void test("a typed array is kept alive while it is registered, even without other references, and released afterwards", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  await using here = await startEngine();
  await using there = await startEngine();
  const source = randomBytes(MIB);
  await here.registerLocalMemory(source);
  let gone = false;
  const registry = new FinalizationRegistry(() => {
    gone = true;
  });
  const register = async () => {
    const memory = new Uint8Array(MIB);
    registry.register(memory.buffer, undefined);
    return there.registerLocalMemory(memory);
  };
  const remote = await register();
  for (let round = 0; round < 5; round++) {
    collect();
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.equal(gone, false);
  const target = await here.openSegment(there.getServerName());
  const back = new Uint8Array(MIB);
  await here.registerLocalMemory(back);
  here.transferSync("WRITE", target, [{ local: source, remote }]);
  here.transferSync("READ", target, [{ local: back, remote }]);
  assert.deepEqual(back, source);
  await there.unregisterLocalMemory(remote);
  await eventually(() => {
    collect();
    return gone || undefined;
  }, "the array is collected");
});

void test("memory that is not remote accessible cannot be accessed by copies between processes either", async () => {
  const transports = ["tcp", "shm"] as const;
  await using peer = await startChild({ transports });
  await using engine = await startEngine({ transports });
  const source = randomBytes(4096);
  await engine.registerLocalMemory(source);
  const open = await peer.ask<string>({ op: "register", length: 4096 });
  for (const shared of [false, true]) {
    const hidden = await peer.ask<string>({ op: "register", length: 4096, shared, remoteAccessible: false });
    const before = await peer.ask({ op: "fill", address: hidden, length: 4096 });
    const target = await engine.openSegment(peer.segment);
    await engine.syncSegmentCache();
    engine.transferSync("WRITE", target, [{ local: source, remote: BigInt(open) }]);
    for (const opcode of ["READ", "WRITE"] as const) {
      assert.throws(() => engine.transferSync(opcode, target, [{ local: source, remote: BigInt(hidden) }]), { name: "TRANSFER_FAILED" });
      await assert.rejects(engine.transfer(opcode, target, [{ local: source, remote: BigInt(hidden) }]), { name: "TRANSFER_FAILED" });
    }
    assert.equal(await peer.ask({ op: "hash", address: hidden, length: 4096 }), before);
    const record = buffersOf(await engine.getMetadata().segmentDescriptor(peer.segment));
    assert.ok(!record.some(({ addr }) => addr === Number(hidden)), "what is hidden is not published");
  }
});

void test("location must name a device; updateMetadata false publishes nothing", async () => {
  await using service = await startHttp();
  await using engine = await startEngine({ metadata: service.metadata, name: "one" });
  for (const location of ["cpu:", "cpu", ":1", "cpu:x", ""])
    await assert.rejects(engine.registerLocalMemory(new Uint8Array(4096), { location }), /location ".*": expected \*, cpu:<index>/, location);
  const quiet = new Uint8Array(4096);
  const start = await engine.registerLocalMemory(quiet, { updateMetadata: false });
  assert.deepEqual(buffersOf(await service.get("svc/ram/one")), []);
  assert.equal(engine.checkOverlap(start, 1), true);
  await engine.unregisterLocalMemory(start, false);
  const loud = await engine.registerLocalMemory(new Uint8Array(4096), { location: "cuda:3" });
  const published = buffersOf(await service.get("svc/ram/one"));
  assert.deepEqual(
    published.map(({ name, addr }) => ({ name, addr })),
    [{ name: "cuda:3", addr: Number(loud) }],
  );
  // With `*` the location is what the kernel reports for the page, or `*` itself.
  await engine.registerLocalMemory(new Uint8Array(1 << 16).fill(1), { location: "*" });
  assert.match(buffersOf(await service.get("svc/ram/one")).find(({ addr }) => addr !== Number(loud))?.name ?? "", /^(cpu:\d+|\*)$/);
});

void test("checkOverlap covers exactly the registered bytes, and handles a range beyond the end of memory", async () => {
  await using engine = await startEngine({ transports: [] });
  const start = await engine.registerLocalMemory(new Uint8Array(8192));
  for (const [address, length, overlaps] of [
    [start, 1, true],
    [start + 8191n, 1, true],
    [start - 10n, 11, true],
    [start - 10n, 1 << 20, true],
    [start - 10n, 10, false],
    [start + 8192n, 1 << 20, false],
    [start, 0, false],
    [2n ** 64n - 8n, 100, false],
  ] as const)
    assert.equal(engine.checkOverlap(address, length), overlaps, `${address - start} ${length}`);
});
