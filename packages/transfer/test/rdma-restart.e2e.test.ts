// An rdma peer that is killed and returns under its name is reached again with its new keys at its new endpoint.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needsFabric, onFabric, rdmaCount } from "./fabric.ts";
import { eventually, MIB, randomBytes, sha256, startChild, startEngine } from "./parts.ts";

/** A recovered peer is reached within a second; this is a limit, not a measurement. */
const BOUND_MS = 60_000;
const ATTEMPT_MS = 10_000;

for (const transports of [["rdma"], ["rdma", "tcp"]] as const)
  void test(
    `a peer that is killed and restarted under its name is reached over rdma again, with ${transports.join(" and ")} installed, despite failing transfers`,
    needsFabric,
    async () => {
      const setup = { ...onFabric, transports };
      await using engine = await startEngine(setup);
      const source = randomBytes(MIB);
      await engine.registerLocalMemory(source);
      let peer = await startChild(setup);
      try {
        const target = await engine.openSegment(peer.segment);
        const rpcPort = Number(peer.segment.split(":")[1]);
        for (let start = 0; start < 3; start++) {
          const address = await peer.ask<string>({ op: "register", length: MIB });
          const remote = BigInt(address);
          const reached = () =>
            engine.transfer("WRITE", target, [{ local: source, remote }], ATTEMPT_MS).then(
              () => true,
              () => undefined,
            );
          await eventually(
            async () => {
              const before = rdmaCount(engine.metrics(), "requests");
              return (await reached()) && rdmaCount(engine.metrics(), "requests") > before ? true : undefined;
            },
            "rdma carries a write",
            BOUND_MS,
          );
          assert.match(engine.explainPath(target, remote, MIB), /^rdma:/);
          assert.equal(await peer.ask({ op: "hash", address, length: MIB }), sha256(source));
          await peer[Symbol.asyncDispose]();
          assert.equal(await reached(), undefined, "nobody is there");
          let starting = true;
          const trying = (async () => {
            while (starting) await reached().then(() => new Promise((resolve) => setTimeout(resolve, 5)));
          })();
          peer = await startChild({ ...setup, rpcPort });
          starting = false;
          await trying;
        }
        assert.match(engine.metrics(), /svc_transfer_peer_restarts_total [2-9]/);
      } finally {
        await peer[Symbol.asyncDispose]();
      }
    },
  );

void test("requests for a peer that is gone do not block a device for others, and release their source when they fail", needsFabric, async () => {
  await using gone = await startChild(onFabric);
  await using there = await startChild(onFabric);
  await using engine = await startEngine(onFabric);
  const source = randomBytes(MIB);
  const start = await engine.registerLocalMemory(source);
  const [lost, kept] = await Promise.all([gone, there].map((peer) => peer.ask<string>({ op: "register", length: MIB })));
  const [away, target] = [await engine.openSegment(gone.segment), await engine.openSegment(there.segment)];
  const write = (segment: bigint, address = "") => engine.transfer("WRITE", segment, [{ local: source, remote: BigInt(address) }]);
  await write(away, lost);
  await gone[Symbol.asyncDispose]();
  const failing = Promise.allSettled(Array.from({ length: 20 }, () => write(away, lost)));
  for (let round = 0; round < 20; round++) await write(target, kept);
  assert.equal(await there.ask({ op: "hash", address: kept, length: MIB }), sha256(source));
  for (const { status } of await failing) assert.equal(status, "rejected");
  await engine.unregisterLocalMemory(start);
});

void test("requests in flight to a temporarily stopped peer complete when it continues", needsFabric, async () => {
  await using peer = await startChild(onFabric);
  await using engine = await startEngine(onFabric);
  const source = randomBytes(8 * MIB);
  await engine.registerLocalMemory(source);
  const address = await peer.ask<string>({ op: "register", length: source.length });
  const target = await engine.openSegment(peer.segment);
  await engine.transfer("WRITE", target, [{ local: source.subarray(0, MIB), remote: BigInt(address) }]);
  await peer.freeze();
  const flights = Array.from({ length: 8 }, (_, i) =>
    engine.transfer("WRITE", target, [{ local: source.subarray(i * MIB, (i + 1) * MIB), remote: BigInt(address) + BigInt(i * MIB) }]),
  );
  const settled = Promise.all(flights);
  // The wait is long enough for several unanswered probes.
  await new Promise((resolve) => setTimeout(resolve, 1500));
  peer.thaw();
  await settled;
  assert.equal(await peer.ask({ op: "hash", address, length: source.length }), sha256(source));
});
