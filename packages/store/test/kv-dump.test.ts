// A dump of every key, made while keys come and go: what follows it is never taken for known.
import assert from "node:assert/strict";
import { test } from "node:test";
import { makeHome } from "@svc/harness/home.ts";
import { until } from "@svc/harness/until.ts";
import type { RpcClient } from "../src/rpc/client.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { type EventMap, endpointsIn, replayed, subscribe } from "./kv-listeners.ts";
import { startMaster } from "./master.ts";

async function put(rpc: RpcClient, keys: readonly string[]): Promise<void> {
  const sizes = keys.map(() => 8n);
  assert.ok((await rpc.call("BatchPutStart", clientID, keys, sizes, plain, "")).every(({ ok }) => ok));
  const metas = keys.map((key) => ({ key, checksum: undefined }));
  assert.ok((await rpc.call("BatchPutEnd", clientID, metas, 4, "")).every(({ ok }) => ok));
}

const numbers = (from: number, count: number) => Array.from({ length: count }, (_, at) => String(from + at));

void test("a dump that is read slowly, while keys come, takes no number of the events that follow", async () => {
  const home = makeHome();
  const { live, replay } = endpointsIn(home);
  await using master = await startMaster({
    home,
    flags: [
      "--enable_kv_events=true",
      `--kv_events_bind_endpoint=${live}`,
      "--kv_events_backend_id=pool",
      `--kv_events_replay_endpoint=${replay}`,
      "--kv_events_queue_capacity=64",
      "--client_ttl=600s",
      "--store.suspect_after_ms=600000",
    ],
  });
  const rpc = await master.rpc();
  assert.ok((await rpc.call("MountSegment", segmentOf(1, 1n << 30n), clientID)).ok);
  for (let from = 0; from < 40_000; from += 1000) await put(rpc, numbers(from, 1000));
  // Their places in the table are the last, and are taken again while the dump is on its way.
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
