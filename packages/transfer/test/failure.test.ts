// The failures that callers see when peers die, stop, return, or are hostile.
import assert from "node:assert/strict";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { eventually, MIB, randomBytes, sha256, startChild, startEngine } from "./parts.ts";

void test("a peer killed during a transfer fails the requests in flight, with peer and range in the message", async () => {
  await using peer = await startChild();
  await using engine = await startEngine();
  const source = randomBytes(64 * MIB);
  await engine.registerLocalMemory(source);
  const remote = BigInt(await peer.ask<string>({ op: "register", length: source.length }));
  const target = await engine.openSegment(peer.segment);
  const flights = Array.from({ length: 8 }, () => engine.transfer("WRITE", target, [{ local: source, remote }]));
  peer.child.kill("SIGKILL");
  const ended = await Promise.allSettled(flights);
  for (const one of ended) if (one.status === "rejected") assert.match(String(one.reason), new RegExp(`${peer.segment.replaceAll(".", "\\.")}.*0x`));
  assert.throws(() => engine.transferSync("WRITE", target, [{ local: source, remote }]), { name: "TRANSFER_FAILED" });
});

void test("a peer that restarts under its name is found by the next transfer", async () => {
  await using engine = await startEngine();
  const source = randomBytes(MIB);
  await engine.registerLocalMemory(source);
  let peer = await startChild();
  const rpcPort = Number(peer.segment.split(":")[1]);
  const target = await engine.openSegment(peer.segment);
  try {
    for (let start = 0; start < 3; start++) {
      const remote = await peer.ask<string>({ op: "register", length: MIB });
      await engine.transfer("WRITE", target, [{ local: source, remote: BigInt(remote) }]);
      engine.transferSync("WRITE", target, [{ local: source, remote: BigInt(remote) }]);
      assert.equal(await peer.ask({ op: "hash", address: remote, length: MIB }), sha256(source));
      await peer[Symbol.asyncDispose]();
      assert.throws(() => engine.transferSync("WRITE", target, [{ local: source, remote: BigInt(remote) }]), { name: "TRANSFER_FAILED" });
      peer = await startChild({ rpcPort });
    }
  } finally {
    await peer[Symbol.asyncDispose]();
  }
});

void test("a transfer to a stopped peer times out as FAILED with its cause and frees its memory, and the peer serves again when it continues", async () => {
  await using peer = await startChild();
  await using engine = await startEngine({ settings: { transfer_timeout_ms: 800, log_level: 0 } });
  const source = randomBytes(MIB);
  const start = await engine.registerLocalMemory(source);
  const remote = await peer.ask<string>({ op: "register", length: MIB });
  const targetID = await engine.openSegment(peer.segment);
  await peer.freeze();
  try {
    const batch = engine.allocateBatchID(4);
    engine.submitTransfer(
      batch,
      Array.from({ length: 4 }, () => ({ opcode: "READ" as const, source, targetID, targetOffset: BigInt(remote) })),
    );
    assert.throws(() => engine.freeBatchID(batch), { name: "TRANSFER_BUSY" });
    assert.throws(() => engine.unregisterLocalMemorySync(start), { name: "TRANSFER_BUSY" });
    assert.equal(await engine.waitBatch(batch, 60_000), true);
    assert.equal(engine.getBatchTransferStatus(batch).status, "FAILED");
    assert.match(engine.getTransferError(batch, 3), /timed out/);
    engine.freeBatchID(batch);
    assert.throws(() => engine.transferSync("WRITE", targetID, [{ local: source, remote: BigInt(remote) }]), /timed out/);
  } finally {
    peer.thaw();
  }
  await eventually(
    () =>
      engine.transfer("WRITE", targetID, [{ local: source, remote: BigInt(remote) }]).then(
        () => true,
        () => undefined,
      ),
    "the peer serves again",
  );
  assert.equal(await peer.ask({ op: "hash", address: remote, length: MIB }), sha256(source));
  await engine.unregisterLocalMemory(start);
});

void test("a segment that several callers open at once serves each, and is an error for each if no peer answers", async () => {
  await using peer = await startChild();
  await using engine = await startEngine();
  const source = randomBytes(MIB);
  await engine.registerLocalMemory(source);
  const remote = BigInt(await peer.ask<string>({ op: "register", length: MIB }));
  for (let round = 0; round < 10; round++) {
    const targets = await Promise.all(
      Array.from({ length: 8 }, async () => {
        const target = await engine.openSegment(peer.segment);
        await engine.transfer("WRITE", target, [{ local: source, remote }]);
        return target;
      }),
    );
    for (const target of targets) engine.closeSegment(target);
  }
  const opened = await Promise.allSettled(Array.from({ length: 8 }, () => engine.openSegment("127.0.0.1:9")));
  assert.deepEqual(new Set(opened.map(({ status }) => status)), new Set(["rejected"]));
});

void test("refused requests of a batch fail alone; the others of the batch complete", async () => {
  await using here = await startEngine();
  await using there = await startEngine();
  const source = randomBytes(64 * 4096);
  const sink = new Uint8Array(source.length);
  await here.registerLocalMemory(source);
  const remote = await there.registerLocalMemory(sink);
  const targetID = await here.openSegment(there.getServerName());
  const batch = here.allocateBatchID(64);
  here.submitTransfer(
    batch,
    Array.from({ length: 64 }, (_, i) => ({
      opcode: "WRITE" as const,
      source: source.subarray(i * 4096, i * 4096 + 4096),
      targetID,
      targetOffset: i % 16 === 3 ? 4096n : remote + BigInt(i * 4096),
    })),
  );
  assert.equal(await here.waitBatch(batch, 60_000), true);
  for (let i = 0; i < 64; i++) {
    assert.equal(here.getTransferStatus(batch, i).status, i % 16 === 3 ? "FAILED" : "COMPLETED", `request ${i}`);
    if (i % 16 === 3) assert.match(here.getTransferError(batch, i), /refused the range/);
    else assert.deepEqual(sink.subarray(i * 4096, i * 4096 + 4096), source.subarray(i * 4096, i * 4096 + 4096));
  }
  here.freeBatchID(batch);
});

const header = (size: bigint, address: bigint, opcode: number): Buffer => {
  const bytes = Buffer.alloc(24);
  bytes.writeBigUInt64LE(size, 0);
  bytes.writeBigUInt64LE(address, 8);
  bytes[16] = opcode;
  return bytes;
};

async function dataPort(engine: { getServerName(): string; getMetadata(): { segmentDescriptor(name: string): Promise<string | undefined> } }): Promise<number> {
  return (JSON.parse((await engine.getMetadata().segmentDescriptor(engine.getServerName())) ?? "{}") as { tcp_data_port: number }).tcp_data_port;
}

async function dial(port: number): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  await new Promise((resolve, reject) => socket.once("connect", resolve).once("error", reject));
  return socket.on("error", () => socket.destroy());
}

/** Returns everything that the server sends until it closes. */
async function said(socket: Socket): Promise<Buffer> {
  const parts: Buffer[] = [];
  socket.on("data", (part) => parts.push(part as Buffer));
  await new Promise((resolve) => socket.once("close", resolve));
  return Buffer.concat(parts);
}

void test("hostile headers on the data port access no memory: wrap-around, ends beyond the buffer, unknown opcodes, size 0", async () => {
  await using engine = await startEngine();
  const secret = randomBytes(4096);
  const before = secret.slice();
  const start = await engine.registerLocalMemory(secret);
  const port = await dataPort(engine);
  const refused = "010000005654434d";
  for (const bytes of [
    header(8n, start + 4090n, 0x80),
    header(0xffff_ffff_ffff_ffffn, start, 0x80),
    header(0xffff_ffff_ffff_fff0n, start + 64n, 0x81),
    header(4097n, start, 0x81),
    header(0n, start, 0x80),
    header(16n, 0n, 0x80),
  ]) {
    const socket = await dial(port);
    socket.write(bytes);
    assert.equal((await said(socket)).toString("hex"), refused, bytes.toString("hex"));
  }
  for (const bytes of [header(16n, start, 0x40), header(16n, start, 0x82), header(4097n, start, 0x01)]) {
    const socket = await dial(port);
    socket.write(bytes);
    assert.equal((await said(socket)).length, 0);
  }
  assert.deepEqual(secret, before);
});

void test("peers with the older framing are served: a read without status, a write without acknowledgement", async () => {
  await using engine = await startEngine();
  const memory = randomBytes(4096);
  const start = await engine.registerLocalMemory(memory);
  const socket = await dial(await dataPort(engine));
  const got = said(socket);
  socket.write(Buffer.concat([header(4n, start, 0x01), Buffer.from("abcd"), header(16n, start, 0x00)]));
  socket.end();
  assert.deepEqual(await got, Buffer.from(memory.subarray(0, 16)));
  assert.equal(Buffer.from(memory.subarray(0, 4)).toString(), "abcd");
});

void test("silent clients of both ports delay no one", async () => {
  await using engine = await startEngine();
  await using other = await startEngine();
  const source = randomBytes(MIB);
  await other.registerLocalMemory(source);
  const sink = new Uint8Array(MIB);
  const remote = await engine.registerLocalMemory(sink);
  const ports = [engine.getRpcPort(), await dataPort(engine)];
  const silent = await Promise.all(Array.from({ length: 60 }, (_, i) => dial(ports[i % 2] as number)));
  // The clients send half a header, half a frame or half a body, and then wait forever.
  silent.forEach((socket, i) => {
    socket.write(i % 4 === 1 ? header(1000n, remote, 0x81) : Buffer.from([9, 0, 0, 0]));
  });
  const target = await other.openSegment(engine.getServerName());
  assert.equal(await other.probePeerAlive(target), true);
  other.transferSync("WRITE", target, [{ local: source, remote }]);
  assert.deepEqual(sink, source);
  await other.sendNotifyByID(target, { name: "still", msg: "here" });
  for (const socket of silent) socket.destroy();
});

void test("garbage on the handshake port closes the connection and has no other effect", async () => {
  await using engine = await startEngine();
  const frame = (length: bigint, body: string) => {
    const prefix = Buffer.alloc(8);
    prefix.writeBigUInt64LE(length);
    return Buffer.concat([prefix, Buffer.from(body)]);
  };
  for (const bytes of [frame(0n, ""), frame(2n ** 40n, "x"), frame(5n, "\x01{no}"), frame(3n, "\x02[]"), frame(12n, "\x01".padEnd(12, "["))]) {
    const socket = await dial(engine.getRpcPort());
    socket.write(bytes);
    socket.end();
    await said(socket);
  }
  await using other = await startEngine();
  assert.equal(await other.probePeerAlive(await other.openSegment(engine.getServerName())), true);
});
