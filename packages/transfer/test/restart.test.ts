// Peers that are killed and return under their name, on every path, whether or not transfers kept failing meanwhile.
import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually, MIB, randomBytes, sha256, startChild, startEngine } from "./parts.ts";
import { startHttp } from "./services.ts";

/** A recovered peer is reached within a second; the bench measures the time. */
const BOUND_MS = 60_000;

for (const [transports, shared, path] of [
  [["tcp"], false, "tcp"],
  [["tcp", "shm"], true, "shm"],
  [["tcp", "shm"], false, "process_vm"],
  [["shm"], true, "shm"],
] as const)
  void test(`a restarted peer is reached over ${path} again, with ${transports.join(" and ")} installed, despite failing transfers`, async () => {
    await using engine = await startEngine({ transports });
    const source = randomBytes(MIB);
    await engine.registerLocalMemory(source);
    let peer = await startChild({ transports });
    try {
      const target = await engine.openSegment(peer.segment);
      const rpcPort = Number(peer.segment.split(":")[1]);
      for (let start = 0; start < 3; start++) {
        const address = await peer.ask<string>({ op: "register", length: MIB, shared });
        const remote = BigInt(address);
        const write = () => engine.transfer("WRITE", target, [{ local: source, remote }]);
        const reached = () =>
          write().then(
            () => true,
            () => undefined,
          );
        await eventually(reached, "the peer is reached", BOUND_MS);
        // A fresh record is not read again for a missing range; tcp serves it until then.
        const wanted = new RegExp(`^${path}:`);
        await eventually(
          async () => ((await reached()) && wanted.test(engine.explainPath(target, remote, MIB)) ? true : undefined),
          `${path} is chosen`,
          BOUND_MS,
        );
        assert.equal(await peer.ask({ op: "hash", address, length: MIB }), sha256(source));
        await peer[Symbol.asyncDispose]();
        await assert.rejects(write(), { name: "TRANSFER_FAILED" });
        let starting = true;
        const trying = (async () => {
          while (starting) await reached().then(() => new Promise((resolve) => setTimeout(resolve, 5)));
        })();
        peer = await startChild({ transports, rpcPort });
        starting = false;
        await trying;
      }
      assert.match(engine.metrics(), /svc_transfer_peer_restarts_total [2-9]/);
    } finally {
      await peer[Symbol.asyncDispose]();
    }
  });

void test("requests that were queued before their peer was killed and restarted end, and later ones complete", async () => {
  await using service = await startHttp();
  await using engine = await startEngine({ metadata: service.metadata, name: "steady", settings: { transfer_timeout_ms: 10_000 } });
  const source = randomBytes(16 * MIB);
  await engine.registerLocalMemory(source);
  const first = await startChild({ metadata: service.metadata, name: "phoenix" });
  const before = BigInt(await first.ask<string>({ op: "register", length: source.length }));
  const target = await engine.openSegment("phoenix");
  await first.freeze();
  const flights = Promise.allSettled(Array.from({ length: 8 }, () => engine.transfer("WRITE", target, [{ local: source, remote: before }])));
  await first[Symbol.asyncDispose]();
  await using second = await startChild({ metadata: service.metadata, name: "phoenix" });
  const after = await second.ask<string>({ op: "register", length: source.length });
  await flights;
  await eventually(
    () =>
      engine.transfer("WRITE", target, [{ local: source, remote: BigInt(after) }]).then(
        () => true,
        () => undefined,
      ),
    "the new one is reached",
    BOUND_MS,
  );
  assert.equal(await second.ask({ op: "hash", address: after, length: source.length }), sha256(source));
});
