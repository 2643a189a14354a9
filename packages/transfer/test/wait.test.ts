// Waiting: a thread spins briefly and then sleeps, so that a waiting engine keeps no core busy.
import assert from "node:assert/strict";
import { test } from "node:test";
import { MIB, randomBytes, sha256, startChild, startEngine } from "./parts.ts";

/** The limit is a share of one core; a thread that never slept would use all of it. */
const MOST_BUSY = 0.25;
const WAIT_MS = 1000;

const after = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

void test("an engine that has served thousands of requests sleeps when there are no more", async () => {
  await using peer = await startChild();
  await using engine = await startEngine();
  const source = randomBytes(4096);
  await engine.registerLocalMemory(source);
  const remote = BigInt(await peer.ask<string>({ op: "register", length: 4096 }));
  const target = await engine.openSegment(peer.segment);
  for (let i = 0; i < 5000; i++) engine.transferSync("WRITE", target, [{ local: source, remote }]);
  const before = await peer.ask<number>({ op: "cpu" });
  const begun = performance.now();
  await after(WAIT_MS);
  const busy = (await peer.ask<number>({ op: "cpu" })) - before;
  assert.ok(busy < (MOST_BUSY * (performance.now() - begun)) / 1000, `${busy} s of processor time while nothing was asked`);
});

void test("a caller that waits for a stopped peer sleeps, and its request completes when the peer continues", async () => {
  await using peer = await startChild();
  await using waiting = await startChild();
  const sink = await peer.ask<string>({ op: "register", length: MIB });
  const source = await waiting.ask<string>({ op: "register", length: MIB });
  const hash = await waiting.ask({ op: "fill", address: source, length: MIB });
  const write = { op: "write", target: peer.segment, address: source, remote: sink, length: MIB, piece: 4096, rounds: 1, sync: true };
  await waiting.ask({ ...write, rounds: 50 });
  const before = await waiting.ask<number>({ op: "cpu" });
  await peer.freeze();
  const begun = performance.now();
  const written = waiting.ask(write);
  await after(WAIT_MS);
  peer.thaw();
  await written;
  const busy = (await waiting.ask<number>({ op: "cpu" })) - before;
  assert.ok(busy < (MOST_BUSY * (performance.now() - begun)) / 1000, `${busy} s of processor time while the peer was stopped`);
  assert.equal(await peer.ask({ op: "hash", address: sink, length: MIB }), hash);
});

void test("with poll_us 0 threads sleep at once, and every form of transfer works", async () => {
  const settings = { poll_us: 0 };
  await using peer = await startChild({ settings });
  await using engine = await startEngine({ settings });
  const source = randomBytes(MIB);
  await engine.registerLocalMemory(source);
  const address = await peer.ask<string>({ op: "register", length: MIB });
  const target = await engine.openSegment(peer.segment);
  const ranges = Array.from({ length: 256 }, (_, i) => ({ local: source.subarray(i * 4096, (i + 1) * 4096), remote: BigInt(address) + BigInt(i * 4096) }));
  engine.transferSync("WRITE", target, ranges.slice(0, 128));
  await engine.transfer("WRITE", target, ranges.slice(128));
  assert.equal(await peer.ask({ op: "hash", address, length: MIB }), sha256(source));
  await assert.rejects(startEngine({ settings: { poll_us: 1001 } }), /poll_us/);
});
