// Batches of copies and moves by clients: what arrives is what was stored, and what cannot be moved stays where it is.
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { alloc } from "@svc/transfer/memory.ts";
import { openEngine } from "../src/client/session/transfer-engine.ts";
import { plain } from "./calls.ts";
import { openClient, startClient } from "./client.ts";
import { startMaster } from "./master.ts";

const MIB = 1 << 20;
/** Bytes from which the key can be recognized. */
const bytesOf = (key: string, sizeBytes: number) => Buffer.alloc(sizeBytes, `${key};`);
/** Sizes below, at and above the slices that are transferred together. */
const sizes: readonly number[] = [1, 100, 4096, 65_536, 65_537, 300_000, MIB, MIB + 1, 3 * MIB];

void test("hundreds of objects of all sizes are moved at once, and one with damaged bytes stays where it is", async () => {
  await using master = await startMaster();
  await using first = await startClient(master, { segmentBytes: 256 * MIB });
  await using second = await startClient(master, { segmentBytes: 256 * MIB });
  await using client = await openClient(master);
  const objects = Array.from({ length: 300 }, (_, at) => ({ key: `k${at}`, sizeBytes: sizes[at % sizes.length] as number }));
  const stored = await client.putBatch(
    objects.map(({ key, sizeBytes }) => ({ key, value: bytesOf(key, sizeBytes) })),
    { preferredSegments: [first.name] },
  );
  assert.ok(stored.every((outcome) => outcome === true));
  const engine = await openEngine({ localHostname: "127.0.0.1", metadata: "P2PHANDSHAKE", protocol: "tcp" });
  const write = async (endpoint: string, address: bigint, bytes: Buffer) => {
    const memory = alloc(bytes.length);
    memory.set(bytes);
    await engine.registerLocalMemory(memory, { remoteAccessible: false });
    await engine.transfer("WRITE", await engine.openSegment(endpoint), [{ local: memory, remote: address }]);
  };
  const [damaged] = await client.replicas("k3");
  await write(first.name, damaged?.address ?? 0n, Buffer.alloc(100, 0xee));
  // Mooncake's writers send no checksum.
  const rpc = await master.rpc();
  const begun = await rpc.call("PutStart", client.clientID, "unnamed", 5000n, { ...plain, preferredSegments: [first.name] }, "");
  assert.ok(begun.ok);
  const [place] = begun.value.map((descriptor) => descriptor.place);
  assert.ok(place?.type === "memory");
  await write(place.buffer.endpoint, place.buffer.address, bytesOf("unnamed", 5000));
  assert.equal((await rpc.call("PutEnd", client.clientID, { key: "unnamed", checksum: undefined }, 4, "")).ok, true);
  rpc.close();
  await engine.freeEngine();

  const keys = [...objects.map(({ key }) => key), "unnamed"];
  const ids = await Promise.all(keys.map((key) => client.createMoveTask(key, first.name, second.name)));
  for (const [at, id] of ids.entries()) {
    const ended = await until(`the task of ${keys[at]}`, async () => {
      const task = await client.task(id);
      return task.status === "succeeded" || task.status === "failed" ? task : undefined;
    });
    assert.equal(ended.status, keys[at] === "k3" ? "failed" : "succeeded", `${keys[at]}: ${ended.message}`);
    if (keys[at] === "k3") assert.match(ended.message, /key k3: the replica in .* has other bytes than were stored/);
  }
  for (const { key, sizeBytes } of objects) {
    if (key === "k3") continue;
    assert.deepEqual(
      (await client.replicas(key)).map(({ endpoint }) => endpoint),
      [second.name],
      key,
    );
    assert.deepEqual(await client.get(key), bytesOf(key, sizeBytes), key);
  }
  assert.deepEqual(await client.get("unnamed"), bytesOf("unnamed", 5000));
  assert.deepEqual(
    (await client.replicas("k3")).map(({ endpoint }) => endpoint),
    [first.name],
  );
});

void test("of two tasks for one key the second is refused, and the others of their batch are executed", async () => {
  await using master = await startMaster();
  await using first = await startClient(master, { segmentBytes: 64 * MIB });
  await using second = await startClient(master, { segmentBytes: 64 * MIB });
  await using client = await openClient(master);
  for (const key of ["a", "b"]) await client.put(key, bytesOf(key, 4096), { preferredSegments: [first.name] });
  await first.freeze();
  const ids: string[] = [];
  for (const key of ["a", "a", "b"]) ids.push(await client.createMoveTask(key, first.name, second.name));
  first.thaw();
  const states: string[] = [];
  for (const id of ids)
    states.push(
      await until("a task that ended", async () => {
        const { status } = await client.task(id);
        return status === "succeeded" || status === "failed" ? status : undefined;
      }),
    );
  assert.deepEqual([states.toSorted(), states[2]], [["failed", "succeeded", "succeeded"], "succeeded"]);
  for (const key of ["a", "b"]) assert.deepEqual(await client.get(key), bytesOf(key, 4096));
});
