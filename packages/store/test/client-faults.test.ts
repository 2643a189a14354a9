// Our client while masters, holders and other clients die, stop, and remove objects: never wrong bytes, and no put lost.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import type { TransferEngine } from "@svc/transfer/engine.ts";
import { alloc } from "@svc/transfer/memory.ts";
import { openEngine } from "../src/client/session/transfer-engine.ts";
import type { StoreClient } from "../src/client/store-client.ts";
import { openClient, startClient } from "./client.ts";
import { startMaster, type TestMaster } from "./master.ts";
import { startRecorder } from "./recorder.ts";

const MIB = 1 << 20;
/** Bytes from which the key can be recognized. */
const bytesOf = (key: string, sizeBytes = 4096) => Buffer.alloc(sizeBytes, `${key};`);

async function usedBytes(master: TestMaster): Promise<number> {
  const { segments } = (await (await fetch(`${master.url}/get_segments_detail`)).json()) as { segments: { allocator_used_bytes: number }[] };
  return segments.reduce((sum, each) => sum + each.allocator_used_bytes, 0);
}

async function overwrite(engine: TransferEngine, client: StoreClient, key: string): Promise<void> {
  const [replica] = await client.replicas(key);
  assert.ok(replica !== undefined);
  const garbage = alloc(replica.sizeBytes).fill(0xee);
  await engine.registerLocalMemory(garbage, { remoteAccessible: false });
  await engine.transfer("WRITE", await engine.openSegment(replica.endpoint), [{ local: garbage, remote: replica.address }]);
}

void test("puts continue while one of two holders is killed, none fails, and what they stored is read back", async () => {
  await using master = await startMaster();
  await using _stays = await startClient(master, { segmentBytes: 64 * MIB });
  await using dies = await startClient(master, { segmentBytes: 64 * MIB });
  await using client = await openClient(master);
  for (let at = 0; at < 200; at++) assert.equal(await client.put(`before-${at}`, bytesOf(`before-${at}`)), true);
  await dies.kill();
  for (let at = 0; at < 300; at++) {
    const key = `after-${at}`;
    assert.equal(at % 2 === 0 ? await client.put(key, bytesOf(key)) : client.putSync(key, bytesOf(key)), true);
  }
  for (let at = 0; at < 300; at++) assert.deepEqual(await client.get(`after-${at}`), bytesOf(`after-${at}`));
  let lost = 0;
  for (let at = 0; at < 200; at++) {
    const found = await client.get(`before-${at}`);
    if (found === undefined) lost++;
    else assert.deepEqual(found, bytesOf(`before-${at}`));
  }
  assert.ok(lost > 0 && lost < 200, `${lost} of 200 lay with the holder that was killed`);
});

void test("puts and gets wait for a master that is killed and started again, and nothing that was stored is lost", async () => {
  await using master = await startMaster();
  await using _holder = await startClient(master, { segmentBytes: 64 * MIB });
  await using client = await openClient(master, { timeoutMs: 60_000 });
  const stored: string[] = [];
  let isOver = false;
  const writing = (async () => {
    for (let at = 0; !isOver; at++) {
      const key = `k${at}`;
      assert.equal(await client.put(key, bytesOf(key)), true);
      stored.push(key);
    }
  })();
  for (let round = 0; round < 3; round++) {
    const before = stored.length;
    await until("puts go on", () => (stored.length > before + 50 ? true : undefined));
    await master.kill();
    await master.start();
  }
  const before = stored.length;
  await until("puts go on", () => (stored.length > before + 50 ? true : undefined));
  isOver = true;
  await writing;
  await using reader = await openClient(master, { timeoutMs: 60_000 });
  await until("the holder is known again", async () => ((await reader.exists(stored[0] as string)) ? true : undefined));
  for (const key of stored) assert.deepEqual(await reader.get(key), bytesOf(key), key);
});

void test("memory that a killed client had leased ahead comes back", async () => {
  await using master = await startMaster({ flags: ["--put_start_discard_timeout_sec=2", "--put_start_release_timeout_sec=1"] });
  await using _holder = await startClient(master, { segmentBytes: 64 * MIB });
  await using writer = await startClient(master);
  for (let at = 0; at < 20; at++) assert.equal(await writer.ask("put", `k${at}`, bytesOf(`k${at}`).toString("base64")), true);
  assert.ok((await usedBytes(master)) > 20 * 4096, "some memory is leased ahead");
  await writer.kill();
  await until("what it did not use is free", async () => ((await usedBytes(master)) === 20 * 4096 ? true : undefined));
});

void test("a cached location never yields another object's bytes: not after a removal, a restart of its holder, or damage", async () => {
  await using master = await startMaster({ flags: ["--default_kv_lease_ttl=1500ms"] });
  await using holder = await startClient(master, { segmentBytes: MIB });
  await using reader = await openClient(master);
  await using other = await openClient(master);
  const keys = Array.from({ length: 16 }, (_, at) => `k${at}`);
  for (const key of keys) await other.put(key, bytesOf(key, 32_768));
  for (const key of keys) assert.deepEqual(reader.getSync(key), bytesOf(key, 32_768));
  // The objects are removed despite their readers' leases, and other puts request the memory at once.
  assert.equal(await other.removeAll(true), 16);
  const filling = (async () => {
    for (let at = 0; at < 24; at++) await other.put(`fill-${at}`, bytesOf(`fill-${at}`, 32_768));
  })();
  const seen = { old: 0, gone: 0 };
  await until("its lease is over", () => {
    const found = reader.getSync("k3");
    if (found !== undefined) assert.deepEqual(found, bytesOf("k3", 32_768));
    seen[found === undefined ? "gone" : "old"]++;
    return found === undefined ? true : undefined;
  });
  assert.ok(seen.old > 0);
  await filling;
  for (let at = 0; at < 24; at++) {
    const found = reader.getSync(`fill-${at}`);
    if (found !== undefined) assert.deepEqual(found, bytesOf(`fill-${at}`, 32_768));
  }
  await other.removeAll(true);
  await until("there is room", async () => (await other.put("damaged", bytesOf("damaged"))) || undefined);
  assert.deepEqual(reader.getSync("damaged"), bytesOf("damaged"));
  await using engine = await openEngine({ localHostname: "127.0.0.1", metadata: "P2PHANDSHAKE", protocol: "tcp" });
  await overwrite(engine, other, "damaged");
  assert.equal(reader.getSync("damaged"), undefined, "bytes with another checksum are a miss");
  assert.equal(await reader.get("damaged"), undefined);
  await holder.kill();
  await using _next = await startClient(master, { segmentBytes: MIB });
  for (const key of [...keys, "damaged"]) assert.equal(reader.getSync(key), undefined);
});

void test("a copy or a move of damaged bytes fails, and leaves what there was", async () => {
  await using master = await startMaster();
  await using first = await startClient(master, { segmentBytes: 16 * MIB });
  await using second = await startClient(master, { segmentBytes: 16 * MIB });
  await using client = await openClient(master);
  await using engine = await openEngine({ localHostname: "127.0.0.1", metadata: "P2PHANDSHAKE", protocol: "tcp" });
  for (const key of ["c", "m"]) {
    await client.put(key, randomBytes(MIB), { preferredSegments: [first.name] });
    await overwrite(engine, client, key);
  }
  for (const id of [await client.createCopyTask("c", [second.name]), await client.createMoveTask("m", first.name, second.name)]) {
    const { status, message } = await until("the task has ended", async () => {
      const state = await client.task(id);
      return state.status === "failed" || state.status === "succeeded" ? state : undefined;
    });
    assert.equal(status, "failed");
    assert.match(message, /checksum/);
  }
  for (const key of ["c", "m"])
    assert.deepEqual(
      (await client.replicas(key)).map(({ endpoint }) => endpoint),
      [first.name],
    );
});

void test("keys of very many sizes, put repeatedly, removed and put at once, use no memory except for what is stored", async () => {
  await using master = await startMaster({ flags: ["--default_kv_lease_ttl=1ms"] });
  await using _holder = await startClient(master, { segmentBytes: 64 * MIB });
  const sizes = Array.from({ length: 600 }, (_, at) => 1000 + at * 64);
  const putAll = (client: StoreClient) => Promise.all(sizes.map((size, at) => client.put(`size-${at}`, Buffer.alloc(size))));
  const first = await openClient(master);
  assert.ok((await putAll(first)).every((isNew) => isNew));
  await first.close();
  const stored = await usedBytes(master);
  const second = await openClient(master);
  for (let round = 0; round < 3; round++) assert.ok((await putAll(second)).every((isNew) => !isNew));
  await until("what nobody puts any more is free", async () => ((await usedBytes(master)) === stored ? true : undefined));
  await Promise.all(sizes.map((_, at) => second.remove(`size-${at}`, true)));
  await Promise.all(sizes.map((size, at) => second.put(`other-${at}`, Buffer.alloc(size + 32)).then(() => second.remove(`other-${at}`, true))));
  await second.close();
  await until("all memory is free", async () => ((await usedBytes(master)) === 0 ? true : undefined));
});

void test("a put whose commit had no answer reports success only if its own value is stored", async () => {
  await using master = await startMaster();
  await using _holder = await startClient(master, { segmentBytes: 16 * MIB });
  let losses = 0;
  await using relay = await startRecorder(master.rpcPort, "svc", (name) => name === "CommitPuts" && losses-- > 0);
  await using client = await startClient({ rpcPort: relay.port });
  await using other = await openClient(master, { knownPlaces: 0 });
  const base64 = (key: string) => bytesOf(key).toString("base64");
  await other.put("theirs", bytesOf("theirs"));
  // Repeated sizes are leased ahead, so a put of registered memory commits at once.
  for (const key of ["a", "b", "c"]) assert.equal(await client.ask("putRegistered", key, base64("ours")), true);
  for (const way of ["put", "putRegistered"]) {
    losses = 1;
    assert.equal(await client.ask(way, "theirs", base64("ours")), false, way);
    assert.ok(losses < 1, "an answer was lost");
    assert.deepEqual(await other.get("theirs"), bytesOf("theirs"));
    losses = 1;
    assert.equal(await client.ask(way, way, base64("ours")), true, way);
    assert.ok(losses < 1, "an answer was lost");
    assert.deepEqual(await other.get(way), bytesOf("ours"));
  }
  losses = 1;
  await client.ask("upsert", "theirs", base64("ours"));
  assert.deepEqual(await other.get("theirs"), bytesOf("ours"));
});
