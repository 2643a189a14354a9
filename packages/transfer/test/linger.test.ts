// Sequential promises: a transfer may end within the call that begins it, and this blocks neither the event loop nor requests to a stopped
// peer.
import assert from "node:assert/strict";
import { test } from "node:test";
import { randomBytes, sha256, startChild, startEngine } from "./parts.ts";

const LENGTH = 4096;
const COUNT = 1000;

void test("transfers that end at once do not starve the event loop", async () => {
  await using engine = await startEngine();
  const memory = randomBytes(2 * LENGTH);
  const at = await engine.registerLocalMemory(memory);
  const ranges = [{ local: memory.subarray(0, LENGTH), remote: at + BigInt(LENGTH) }];
  let turns = 0;
  let isOver = false;
  const turn = () => {
    turns++;
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  for (let i = 0; i < COUNT; i++) await engine.transfer("WRITE", 0n, ranges);
  isOver = true;
  assert.ok(turns >= COUNT / 40, `the loop had ${turns} turns in ${COUNT} transfers`);
  assert.ok(turns <= COUNT / 4, `the loop had ${turns} turns in ${COUNT} transfers, each of which needs none`);
  assert.equal(sha256(memory.subarray(LENGTH)), sha256(memory.subarray(0, LENGTH)));
  await assert.rejects(engine.transfer("WRITE", 0n, [{ local: memory.subarray(0, LENGTH), remote: 16n }]), {
    name: "TRANSFER_FAILED",
    message: /lies in no registered buffer/,
  });
});

void test("short sequential requests survive a peer that stops, one that ends, and its successor", async () => {
  await using engine = await startEngine({ settings: { poll_us: 1000 } });
  const memory = randomBytes(2 * LENGTH);
  await engine.registerLocalMemory(memory);
  const source = memory.subarray(0, LENGTH);
  const sink = memory.subarray(LENGTH);
  for (let round = 0; round < 3; round++) {
    await using peer = await startChild();
    const remote = BigInt(await peer.ask<string>({ op: "register", length: LENGTH }));
    const target = await engine.openSegment(peer.segment);
    const write = (timeoutMs?: number) => engine.transfer("WRITE", target, [{ local: source, remote }], timeoutMs);
    for (let i = 0; i < 200; i++) {
      source[0] = i;
      await write();
      sink.fill(0);
      await engine.transfer("READ", target, [{ local: sink, remote }]);
      assert.equal(sink[0], i);
    }
    assert.equal(sha256(sink), sha256(source));
    await peer.freeze();
    let turns = 0;
    const timer = setInterval(() => turns++, 1);
    await assert.rejects(write(300), /timed out/);
    clearInterval(timer);
    assert.ok(turns > 10, `the loop had ${turns} turns while a peer stood still`);
    peer.thaw();
    // Many concurrent requests follow and overlap the sequential ones.
    await Promise.all(Array.from({ length: 64 }, () => write()));
    await write();
  }
});
