// Time-outs hold, whatever else is waited for: a stopped peer, its record, other requests of the same connection.
import assert from "node:assert/strict";
import { performance } from "node:perf_hooks";
import { test } from "node:test";
import { eventually, randomBytes, startChild, startEngine } from "./parts.ts";

const LENGTH = 65_536;
const TIMEOUT_MS = 500;
/** Ten times the time-out. It also covers the wait for a stopped peer's handshake port, and several lanes in sequence. */
const KEPT_MS = 5000;

/** Measures how long the call takes to fail as expected. */
async function failsAfter(call: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await assert.rejects(call(), /timed out/);
  return performance.now() - began;
}

void test("requests to a stopped peer fail at their time-out, over any number of connections, without waiting for its record", async () => {
  await using peer = await startChild();
  await using engine = await startEngine({ settings: { transfer_timeout_ms: TIMEOUT_MS, lanes_per_peer: 8, log_level: 0 } });
  const source = randomBytes(LENGTH);
  await engine.registerLocalMemory(source);
  const remote = BigInt(await peer.ask<string>({ op: "register", length: LENGTH }));
  const target = await engine.openSegment(peer.segment);
  const write = (timeoutMs?: number) => engine.transfer("WRITE", target, [{ local: source, remote }], timeoutMs);
  await Promise.all(Array.from({ length: 64 }, () => write(60_000)));
  await peer.freeze();
  try {
    const took = await Promise.all(Array.from({ length: 64 }, () => failsAfter(() => write())));
    assert.ok(Math.max(...took) < KEPT_MS, `the last failed after ${Math.max(...took)} ms`);
    // A request with a long time-out is in front of one with a short time-out.
    const patient = write(60_000).catch(() => undefined);
    assert.ok((await failsAfter(() => write(TIMEOUT_MS))) < KEPT_MS);
    // A range that the record lacks makes the engine read the record first.
    const unknown = () => engine.transfer("WRITE", target, [{ local: source, remote: 4096n }], TIMEOUT_MS);
    assert.ok((await failsAfter(unknown)) < KEPT_MS);
    const began = performance.now();
    for (const at of [remote, 4096n]) assert.throws(() => engine.transferSync("WRITE", target, [{ local: source, remote: at }], TIMEOUT_MS), /timed out/);
    assert.ok(performance.now() - began < 2 * KEPT_MS);
    peer.thaw();
    await patient;
  } finally {
    peer.thaw();
  }
  await eventually(
    () =>
      write().then(
        () => true,
        () => undefined,
      ),
    "the peer serves again",
  );
});
