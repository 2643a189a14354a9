// A dump of every key that is made while keys come and go: the events after it are never taken for known.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { until } from "@svc/harness/until.ts";
import type { RpcClient } from "../src/rpc/client.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { askReplay, BLOCK, type EventMap, endpointsIn, type Indexer, MODEL, replayed, startIndexer, subscribe } from "./kv-listeners.ts";
import { startMaster, type TestMaster } from "./master.ts";

/** Starts a master whose holders need not ping. */
function startPublishing(home: string, more: readonly string[] = []): Promise<TestMaster> {
  const { live, replay } = endpointsIn(home);
  return startMaster({
    home,
    flags: [
      "--enable_kv_events=true",
      `--kv_events_bind_endpoint=${live}`,
      "--kv_events_backend_id=pool",
      `--kv_events_replay_endpoint=${replay}`,
      "--client_ttl=600s",
      "--store.suspect_after_ms=600000",
      ...more,
    ],
  });
}

async function put(rpc: RpcClient, keys: readonly string[]): Promise<void> {
  const sizes = keys.map(() => 8n);
  assert.ok((await rpc.call("BatchPutStart", clientID, keys, sizes, plain, "")).every(({ ok }) => ok));
  const metas = keys.map((key) => ({ key, checksum: undefined }));
  assert.ok((await rpc.call("BatchPutEnd", clientID, metas, 4, "")).every(({ ok }) => ok));
}

const numbers = (from: number, count: number) => Array.from({ length: count }, (_, at) => String(from + at));

void test("a dump that is read slowly, while keys come, uses no number of the events that follow", async () => {
  const home = makeHome();
  const { live, replay } = endpointsIn(home);
  await using master = await startPublishing(home, ["--kv_events_queue_capacity=64"]);
  const rpc = await master.rpc();
  assert.ok((await rpc.call("MountSegment", segmentOf(1, 1n << 30n), clientID)).ok);
  for (let from = 0; from < 40_000; from += 1000) await put(rpc, numbers(from, 1000));
  // These keys occupy the last entries of the table, which are reused during the dump.
  for (let from = 30_000; from < 40_000; from += 1000) assert.ok((await rpc.call("BatchRemove", numbers(from, 1000), true, "")).every(({ ok }) => ok));
  using listener = subscribe(live);
  const batches: EventMap[][] = [];
  for await (const batch of replayed(replay, 0)) {
    batches.push(batch.events);
    if (batches.length === 1) for (let from = 50_000; from < 55_000; from += 1000) await put(rpc, numbers(from, 1000));
  }
  const dumped = batches.flat();
  assert.ok(new Set(dumped.map((event) => event.object_key)).size > 34_000, "new keys were dumped, too");
  assert.equal((await rpc.call("Remove", "1", true, "")).ok, true);
  const removed = await until("its event", () => listener.events().find((event) => event.event_type === "removed" && event.object_key === "1"));
  const last = dumped.reduce((most, { event_id }) => Math.max(most, event_id), 0);
  assert.ok(last < removed.event_id, `${last} in the dump, ${removed.event_id} behind it`);
  rpc.close();
});

void test("a dump ends with a batch that the master keeps: a replay from there returns that batch, and no other dump", async () => {
  const home = makeHome();
  await using master = await startPublishing(home);
  const { live, replay } = endpointsIn(home);
  let rpc = await master.rpc();
  assert.ok((await rpc.call("MountSegment", segmentOf(1, 1n << 30n), clientID)).ok);
  await put(rpc, numbers(1, 300));
  const before = (await askReplay(replay, 0)).at(-1)?.sequence ?? -1;
  await master.kill();
  await master.start();
  rpc.close();
  rpc = await master.rpc();
  assert.ok((await rpc.call("MountSegment", segmentOf(1, 1n << 30n), clientID)).ok);
  using listener = subscribe(live);
  const dumped = await askReplay(replay, 0);
  assert.equal(new Set(dumped.flatMap(({ events }) => events).map((event) => event.object_key)).size, 300);
  const last = dumped.at(-1);
  assert.ok(last !== undefined && last.sequence > before);
  assert.deepEqual(last.events, []);
  assert.deepEqual(await askReplay(replay, last.sequence), [last]);
  // Every further dump ends with the same batch as long as nothing else is published.
  for (const from of [0, last.sequence - 1]) {
    const again = await askReplay(replay, from);
    assert.deepEqual(again.at(-1), last);
    assert.equal(new Set(again.flatMap(({ events }) => events).map((event) => event.object_key)).size, 300);
  }
  await put(rpc, ["1000"]);
  const next = await until("the next batch", () => listener.batches.find(({ payload: [, events] }) => events.some((event) => event.object_key === "1000")));
  assert.equal(next.sequence, last.sequence + 1);
  rpc.close();
  removeHome(home);
});

type Look = { readonly CPU: number; readonly complete: boolean; readonly restarts: number; readonly replayed: number; readonly doctor: readonly string[] };

async function look(indexer: Indexer, hash: bigint): Promise<Look> {
  const row = (await indexer.client.queryByHash(BigUint64Array.from([hash]), { model: MODEL, blockSize: BLOCK }))["default"]?.["pool"];
  const { services } = (await (await fetch(`${indexer.url}/services`)).json()) as {
    services: { freshness: { complete: boolean }; batches: Record<string, number>; doctor: string[] }[];
  };
  const [service] = services;
  const { restarts = -1, replayed = -1 } = service?.batches ?? {};
  return { CPU: row?.CPU ?? 0, complete: service?.freshness.complete === true, restarts, replayed, doctor: service?.doctor ?? ["no service"] };
}

void test("after a master restarts, an indexer under constant queries reads its keys once more, and answers them throughout", async () => {
  const home = makeHome();
  await using master = await startPublishing(home);
  const { live, replay } = endpointsIn(home);
  await using indexer = await startIndexer(live, replay, 200);
  const rpc = await master.rpc();
  assert.ok((await rpc.call("MountSegment", segmentOf(1, 1n << 30n), clientID)).ok);
  const first = 3_000_000_000_000;
  for (let at = 0; at < 300; at += 50) await put(rpc, numbers(first + at, 50));
  rpc.close();
  const asked = BigInt(first + 7);
  const before = await until("all is known", async () => {
    const found = await look(indexer, asked);
    return found.complete && found.CPU === BLOCK && (await indexer.holds(BigInt(first + 299))) ? found : undefined;
  });
  await master.kill();
  await master.start();
  const looks: Look[] = [];
  const isKnownAgain = await until("its keys are read again", async () => {
    const found = await look(indexer, asked);
    looks.push(found);
    return found.complete && found.replayed > before.replayed ? found : undefined;
  });
  // Long enough for several checks of a quiet publisher.
  for (const end = performance.now() + 2500; performance.now() < end; await delay(10)) looks.push(await look(indexer, asked));
  const after = looks.at(-1);
  assert.deepEqual(after, { CPU: BLOCK, complete: true, restarts: before.restarts, replayed: isKnownAgain.replayed, doctor: [] });
  assert.deepEqual(looks.filter(({ CPU }) => CPU !== BLOCK).slice(0, 3), []);
  assert.doesNotMatch(master.log(), /not read to its end/);
  removeHome(home);
});

void test("an indexer that starts late at a quiet store reads its keys once, though the master no longer keeps what it published", async () => {
  const home = makeHome();
  await using master = await startPublishing(home, ["--kv_events_queue_capacity=64"]);
  const { live, replay } = endpointsIn(home);
  const rpc = await master.rpc();
  assert.ok((await rpc.call("MountSegment", segmentOf(1, 1n << 30n), clientID)).ok);
  for (let at = 1; at <= 300; at += 50) await put(rpc, numbers(at, 50));
  rpc.close();
  await using indexer = await startIndexer(live, replay, 200);
  const known = await until("all is known", async () => {
    const found = await look(indexer, 7n);
    return found.complete && found.CPU === BLOCK ? found : undefined;
  });
  const looks: Look[] = [];
  for (const end = performance.now() + 2500; performance.now() < end; await delay(10)) looks.push(await look(indexer, 7n));
  assert.deepEqual(looks.filter(({ CPU, complete, replayed }) => CPU !== BLOCK || !complete || replayed !== known.replayed).slice(0, 3), []);
  removeHome(home);
});
