// Network faults between an engine and its peer, injected by a relay in front of the data port.
import assert from "node:assert/strict";
import { test } from "node:test";
import { startRelay } from "@svc/harness/relay.ts";
import type { TransferEngine } from "../src/engine.ts";
import { eventually, MIB, randomBytes, startEngine } from "./parts.ts";
import { startHttp } from "./services.ts";

async function startBehindRelay(timeoutMs = 30_000) {
  const service = await startHttp();
  const settings = { log_level: 0, transfer_timeout_ms: timeoutMs, heartbeat_ms: 3_600_000, lease_ms: 0 };
  const there = await startEngine({ metadata: service.metadata, name: "there", settings });
  const sink = new Uint8Array(16 * MIB);
  const remote = await there.registerLocalMemory(sink);
  const record = JSON.parse((await service.get("svc/ram/there")) ?? "") as { tcp_data_port: number };
  const relay = await startRelay(record.tcp_data_port);
  // Peers that read the record from here on use the relay.
  await service.put("svc/ram/there", JSON.stringify({ ...record, tcp_data_port: relay.port }));
  const here: TransferEngine = await startEngine({ metadata: service.metadata, name: "here", settings });
  const source = randomBytes(16 * MIB);
  await here.registerLocalMemory(source);
  return {
    here,
    relay,
    sink,
    source,
    remote,
    target: await here.openSegment("there"),
    async [Symbol.asyncDispose]() {
      await Promise.all([here.freeEngine(), there.freeEngine()]);
      await relay[Symbol.asyncDispose]();
      await service[Symbol.asyncDispose]();
    },
  };
}

void test("a connection that is cut once during a transfer is replaced, and every byte arrives", async () => {
  await using pair = await startBehindRelay();
  pair.relay.cutAfterBytes = 5 * MIB;
  const ranges = Array.from({ length: 64 }, (_, i) => ({
    local: pair.source.subarray(i * 262_144, (i + 1) * 262_144),
    remote: pair.remote + BigInt(i * 262_144),
  }));
  await pair.here.transfer("WRITE", pair.target, ranges);
  assert.equal(pair.relay.cuts, 1);
  assert.deepEqual(pair.sink, pair.source);
  assert.match(pair.here.metrics(), /svc_transfer_connections_broken_total [1-9]/);
});

void test("a half-open network fails the transfer at its deadline, and works again once it recovers", async () => {
  await using pair = await startBehindRelay(500);
  pair.relay.stalled = true;
  await assert.rejects(pair.here.transfer("WRITE", pair.target, [{ local: pair.source, remote: pair.remote }]), /timed out/);
  pair.relay.stalled = false;
  const range = { local: pair.source.subarray(0, MIB), remote: pair.remote };
  await eventually(
    () =>
      pair.here.transfer("WRITE", pair.target, [range]).then(
        () => true,
        () => undefined,
      ),
    "it works again",
  );
  assert.deepEqual(pair.sink.subarray(0, MIB), pair.source.subarray(0, MIB));
});

void test("network delay reorders nothing", async () => {
  await using pair = await startBehindRelay();
  pair.relay.delayMs = 3;
  const ranges = Array.from({ length: 256 }, (_, i) => ({ local: pair.source.subarray(i * 4096, (i + 1) * 4096), remote: pair.remote + BigInt(i * 4096) }));
  await pair.here.transfer("WRITE", pair.target, ranges);
  assert.deepEqual(pair.sink.subarray(0, MIB), pair.source.subarray(0, MIB));
});
