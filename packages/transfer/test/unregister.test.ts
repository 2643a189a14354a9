// Unregistration: once it is acknowledged, no bytes enter the memory, whatever the length of a copy and the state of the copying process.
import assert from "node:assert/strict";
import { test } from "node:test";
import { UNTIL_BOUND_MS } from "@svc/harness/until.ts";
import { alloc } from "../src/memory.ts";
import { eventually, MIB, randomBytes, startChild, startEngine } from "./parts.ts";

const transports = ["tcp", "shm"] as const;
const LENGTH = 128 * MIB;
const OWN_SEGMENT = 0n;

const isBlank = (memory: Uint8Array) => Buffer.compare(memory, new Uint8Array(memory.length)) === 0;
const untilWritten = (memory: Uint8Array) => eventually(() => (isBlank(memory.subarray(0, 64)) ? undefined : true), "bytes come in");

for (const [shared, path] of [
  [true, "shm"],
  [false, "process_vm"],
] as const) {
  const start = async () => {
    const writer = await startChild({ transports });
    const engine = await startEngine({ transports });
    const sink = shared ? alloc(LENGTH) : new Uint8Array(LENGTH);
    const remote = await engine.registerLocalMemory(sink);
    const address = await writer.ask<string>({ op: "register", length: LENGTH });
    await writer.ask({ op: "fill", address, length: LENGTH });
    // Each request writes the whole length, repeatedly until one fails.
    const writing = writer
      .ask({ op: "write", target: engine.getServerName(), address, remote: String(remote), length: LENGTH, piece: LENGTH, rounds: 1e9, sync: true })
      .catch(String);
    await untilWritten(sink);
    return { writer, engine, sink, remote, writing };
  };

  void test(`no byte of one long write over ${path} arrives after the memory was unregistered`, async () => {
    const { writer, engine, sink, remote, writing } = await start();
    await using _ = writer;
    await using __ = engine;
    await engine.unregisterLocalMemory(remote);
    sink.fill(0);
    assert.match(String(await writing), /refused the range|unregistered/);
    assert.ok(isBlank(sink));
  });

  void test(`memory that a stopped process was writing over ${path} is not released until that process continues, and then stays unchanged`, async () => {
    const { writer, engine, sink, remote, writing } = await start();
    await using _ = writer;
    await using __ = engine;
    await writer.freeze();
    try {
      // The process may have stopped between two copies, which blocks nothing, but nearly always it is within one.
      const refused = await engine.unregisterLocalMemory(remote).then(
        () => undefined,
        (error: Error) => error,
      );
      if (refused !== undefined) {
        assert.equal(refused.name, "TRANSFER_BUSY");
        assert.match(refused.message, new RegExp(`process ${writer.child.pid} has begun a copy`));
        assert.equal(engine.checkOverlap(remote, 1), true, "the range cannot be registered anew meanwhile");
        await assert.rejects(engine.transfer("READ", OWN_SEGMENT, [{ local: sink.subarray(0, 8), remote }]), { name: "MEMORY_NOT_REGISTERED" });
        writer.thaw();
        await eventually(
          () =>
            engine.unregisterLocalMemory(remote).then(
              () => true,
              () => undefined,
            ),
          "the copy ends",
        );
      }
      sink.fill(0);
    } finally {
      writer.thaw();
    }
    assert.match(String(await writing), /refused the range|unregistered/);
    assert.ok(isBlank(sink));
  });

  void test(`a process that was killed during a copy over ${path} does not block the release of memory`, async () => {
    const { writer, engine, sink, remote, writing } = await start();
    await using __ = engine;
    await writer[Symbol.asyncDispose]();
    await writing;
    await engine.unregisterLocalMemory(remote);
    sink.fill(0);
    assert.ok(isBlank(sink));
  });
}

void test("freeing an engine while a stopped process is copying is refused, and succeeds once that process has ended", async () => {
  const bound = performance.now() + UNTIL_BOUND_MS;
  for (let refused = false; !refused; ) {
    assert.ok(performance.now() < bound, "the process always stopped between two copies");
    await using writer = await startChild({ transports });
    const engine = await startEngine({ transports });
    const sink = alloc(LENGTH);
    const remote = String(await engine.registerLocalMemory(sink));
    const address = await writer.ask<string>({ op: "register", length: LENGTH });
    await writer.ask({ op: "fill", address, length: LENGTH });
    void writer.ask({ op: "write", target: engine.getServerName(), address, remote, length: LENGTH, piece: LENGTH, rounds: 1e9, sync: true }).catch(String);
    await untilWritten(sink);
    await writer.freeze();
    refused = await engine.freeEngine().then(
      () => false,
      (error: Error) => error.name === "TRANSFER_BUSY",
    );
    await writer[Symbol.asyncDispose]();
    await engine.freeEngine();
  }
});

void test("memory that a copy within the process reads or writes is not released before the copy ends", async () => {
  await using engine = await startEngine();
  const source = randomBytes(LENGTH);
  const sink = new Uint8Array(LENGTH);
  // The very first and last bytes are excluded, because some processors' memcpy writes them last.
  const [early, late] = [MIB, LENGTH - MIB];
  source[early] = source[late] = 1;
  await engine.registerLocalMemory(source);
  const bound = performance.now() + UNTIL_BOUND_MS;
  for (let refused = 0; refused < 3; ) {
    assert.ok(performance.now() < bound, "no copy was met under way");
    sink[early] = sink[late] = 0;
    const remote = await engine.registerLocalMemory(sink);
    const copy = engine.transfer("WRITE", OWN_SEGMENT, [{ local: source, remote }]);
    while (sink[early] === 0);
    try {
      engine.unregisterLocalMemorySync(remote);
      assert.equal(sink[late], 1, "the copy was through");
      await copy;
    } catch (error) {
      assert.equal((error as Error).name, "TRANSFER_BUSY");
      refused++;
      await copy;
      engine.unregisterLocalMemorySync(remote);
    }
  }
});
