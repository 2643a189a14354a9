// KV events of the master: their bytes, their order across kills, the cause of each, and that an indexer knows what the master knows.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { until } from "@svc/harness/until.ts";
import { Subscriber } from "zeromq";
import type { RpcClient } from "../src/rpc/client.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { askReplay, endpointsIn, startIndexer, startRelay, subscribe } from "./kv-listeners.ts";
import { startMaster, type TestMaster } from "./master.ts";

const MAIN = fileURLToPath(new URL("../src/master/main.ts", import.meta.url));
const PATIENT = ["--client_ttl=600s", "--store.suspect_after_ms=600000"];
const secondID = "00000000-0000-0001-0000-000000000003";

async function startPublishing(home: string, more: readonly string[] = PATIENT): Promise<TestMaster> {
  const { live, replay } = endpointsIn(home);
  const flags = [
    "enable_kv_events=true",
    `--kv_events_bind_endpoint=${live}`,
    "--kv_events_backend_id=pool-1",
    `--kv_events_replay_endpoint=${replay}`,
    ...more,
  ];
  return startMaster({ home, flags });
}

async function put(rpc: RpcClient, keys: readonly string[], config = plain): Promise<void> {
  const sizes = keys.map(() => 8n);
  assert.ok((await rpc.call("BatchPutStart", clientID, keys, sizes, config, "")).every(({ ok }) => ok));
  const metas = keys.map((key) => ({ key, checksum: undefined }));
  assert.ok((await rpc.call("BatchPutEnd", clientID, metas, 4, "")).every(({ ok }) => ok));
}

const mount = async (rpc: RpcClient, number = 1, owner = clientID) => assert.ok((await rpc.call("MountSegment", segmentOf(number, 1n << 30n), owner)).ok);
const numbers = (from: number, count: number) => Array.from({ length: count }, (_, at) => String(from + at));

/** Puts until the subscriber receives events, so that nothing later is lost to a connection that was still being made. */
async function heard(rpc: RpcClient, listener: ReturnType<typeof subscribe>): Promise<void> {
  let at = 0;
  await until("the subscriber hears", async () => {
    await put(rpc, [`warm-${at++}`]);
    return listener.batches.length > 0 ? true : undefined;
  });
  await until("all of it came", () => (listener.events().some((event) => event.object_key === `warm-${at - 1}`) ? true : undefined));
  listener.batches.length = 0;
}

type Shape = { readonly flags: readonly string[]; readonly key: string; readonly stored: readonly string[]; readonly removed: readonly string[] };
const envelope = ["event_id", "timestamp", "event_type"];
const middle = ["model_name", "block_size", "additional_salt", "lora_name", "tenant_id", "backend_id", "group_id", "medium", "dp_rank"];
const shapes: readonly Shape[] = [
  {
    flags: [],
    key: "18446744073709551615",
    stored: [...envelope, "type", ...middle, "object_key", "seq_hashes", "block_hashes", "base_block_idx", "parent_hash", "token_ids", "parent_block_hash"],
    removed: [...envelope, "type", ...middle, "object_key", "seq_hashes", "block_hashes", "base_block_idx"],
  },
  {
    flags: ["--kv_events_emit_legacy_compat=false", "--kv_events_emit_object_key=false"],
    key: "0xffffffffffffffff",
    stored: [...envelope, ...middle, "seq_hashes", "base_block_idx", "parent_hash", "token_ids"],
    removed: [...envelope, ...middle, "seq_hashes", "base_block_idx"],
  },
];

for (const { flags, key, stored, removed } of shapes)
  void test(`events are three frames and maps in Mooncake's order (${flags.length === 0 ? "as usual" : "without legacy names and keys"})`, async () => {
    const home = makeHome();
    await using master = await startPublishing(home, [...PATIENT, ...flags]);
    using listener = subscribe(endpointsIn(home).live);
    const rpc = await master.rpc();
    await mount(rpc);
    if (flags.length === 0) await heard(rpc, listener);
    else
      await until("the subscriber hears", async () => {
        await rpc.call("Remove", "1", true, "");
        await put(rpc, ["1"]);
        return listener.batches.length > 0 ? true : undefined;
      });
    await put(rpc, [key]);
    await rpc.call("Remove", key, true, "");
    const ours = () => listener.batches.filter((batch) => batch.payload[1].some((event) => event.seq_hashes[0] === 0xffffffffffffffffn));
    await until("both came", () => (ours().length === 2 ? true : undefined));
    for (const [batch, type, names] of [[ours()[0], "stored", stored] as const, [ours()[1], "removed", removed] as const]) {
      assert.ok(batch);
      assert.equal(batch.frames, 3);
      assert.equal(batch.topic, "");
      const [ts, [event], rank] = batch.payload;
      assert.ok(Math.abs(ts - Date.now()) < 600_000);
      assert.equal(rank, 0);
      assert.deepEqual(Object.keys(event ?? {}), names);
      assert.equal(event?.event_type, type);
      assert.equal(event["tenant_id"], "default");
      assert.equal(event["backend_id"], "pool-1");
      assert.equal(event["medium"], "cpu");
      assert.equal(event["base_block_idx"], type === "stored" ? 0 : null);
      for (const name of ["model_name", "block_size", "additional_salt", "lora_name", "dp_rank", "group_id"]) assert.equal(event[name], null, name);
      if (flags.length > 0) continue;
      assert.equal(event["type"], type === "stored" ? "BlockStored" : "BlockRemoved");
      assert.deepEqual((event["block_hashes"] as number[]).map(BigInt), [-1n]);
      assert.equal(event.object_key, key);
    }
    // A key that is not a number has no block: its event carries the name or is not sent.
    await put(rpc, ["a name"]);
    await put(rpc, ["2"]);
    await until("the last one came", () => (listener.events().some((event) => event.seq_hashes[0] === 2n) ? true : undefined));
    const named = listener.events().filter((event) => event.seq_hashes.length === 0 && (event.object_key ?? "a name") === "a name");
    assert.equal(named.length, flags.length === 0 ? 1 : 0);
    const status = (await (await fetch(`${master.url}/kv_events/status`)).json()) as Record<string, number | boolean>;
    assert.equal(status["enabled"], true);
    assert.ok((status["published_events"] as number) >= 4 && (status["skipped_unparsed_keys"] as number) >= 1);
    rpc.close();
    removeHome(home);
  });

void test("numbers and event ids continue without a gap when the master is killed between puts", async () => {
  const home = makeHome();
  await using master = await startPublishing(home);
  using listener = subscribe(endpointsIn(home).live);
  let rpc = await master.rpc();
  await mount(rpc);
  await heard(rpc, listener);
  await put(rpc, numbers(0, 200));
  await until("all came", () => (listener.events().length >= 200 ? true : undefined));
  const before = listener.batches.at(-1);
  await master.kill();
  await master.start();
  rpc.close();
  rpc = await master.rpc();
  await mount(rpc);
  listener.batches.length = 0;
  // The subscriber misses what is published before it is back; the replay has it.
  await put(rpc, numbers(1000, 10));
  const first = await until("the next batch can be had", async () => (await askReplay(endpointsIn(home).replay, (before?.sequence ?? 0) + 1))[0]);
  assert.equal(first.sequence, (before?.sequence ?? 0) + 1);
  assert.equal(first.events[0]?.event_id, (before?.payload[1].at(-1)?.event_id ?? 0) + 1);
  rpc.close();
  removeHome(home);
});

void test("subscribers see a key removed with its last copy, whatever removes it", async () => {
  const home = makeHome();
  await using master = await startPublishing(home, ["--client_ttl=6s", "--store.suspect_after_ms=5900"]);
  using listener = subscribe(endpointsIn(home).live);
  const rpc = await master.rpc();
  const alive = setInterval(() => void rpc.call("Ping", clientID).catch(() => undefined), 200);
  const alsoAlive = setInterval(() => void rpc.call("Ping", secondID).catch(() => undefined), 200);
  await mount(rpc, 1);
  await mount(rpc, 2, secondID);
  await heard(rpc, listener);
  const on = (number: number) => ({ ...plain, preferredSegment: `holder-${number}:1` });
  await put(rpc, ["both"], { ...plain, replicas: 2n });
  await put(rpc, ["first"], on(1));
  await put(rpc, ["second", "cleared", "upserted"], on(2));
  const types = (key: string) =>
    listener
      .events()
      .filter((event) => event.object_key === key)
      .map((event) => event.event_type);
  const went = (key: string) => until(`${key} is removed`, () => (types(key).at(-1) === "removed" ? true : undefined));
  assert.deepEqual(await rpc.call("BatchReplicaClear", ["cleared"], clientID, ""), { ok: true, value: ["cleared"] });
  await went("cleared");
  assert.ok((await rpc.call("UpsertStart", clientID, "upserted", 8n, on(2), "")).ok);
  assert.ok((await rpc.call("UpsertEnd", clientID, { key: "upserted", checksum: undefined }, 4, "")).ok);
  await until("the upsert is published", () => (types("upserted").length === 2 ? true : undefined));
  assert.deepEqual(types("upserted"), ["stored", "stored"]);
  // This holder stops pinging.
  clearInterval(alsoAlive);
  await went("second");
  await went("upserted");
  await rpc.call("UnmountSegment", segmentOf(1, 1n << 30n).id, clientID);
  await went("first");
  await went("both");
  assert.deepEqual(types("both"), ["stored", "removed"]);
  await mount(rpc, 1);
  await put(rpc, ["last"]);
  assert.equal((await fetch(`${master.url}/api/v1/remove_all?force=true`, { method: "POST" })).status, 200);
  await went("last");
  clearInterval(alive);
  rpc.close();
  removeHome(home);
});

void test("after lost batches, a killed master and a late start, indexers answer what the master's table has", async () => {
  const home = makeHome();
  await using master = await startPublishing(home);
  const { live, replay } = endpointsIn(home);
  const lossy = `ipc://${join(home, "lossy.sock")}`;
  let losing = false;
  using _relay = await startRelay(live, lossy, () => losing);
  await using first = await startIndexer(lossy, replay);
  let rpc = await master.rpc();
  await mount(rpc);
  const keys = numbers(1, 400);
  const agree = async (indexer: Awaited<ReturnType<typeof startIndexer>>, what: string) =>
    until(`${what}: the indexer answers what the table holds`, async () => {
      const answer = await (await fetch(`${master.url}/batch_query_keys?keys=${keys}`)).json();
      const table = (answer as { data: Record<string, { ok: boolean }> }).data;
      for (const key of keys) if ((await indexer.holds(BigInt(key))) !== table[key]?.ok) return undefined;
      return true;
    });
  await put(rpc, keys.slice(0, 200));
  await agree(first, "after puts");
  losing = true;
  await rpc.call("BatchRemove", keys.slice(0, 50), true, "");
  await put(rpc, keys.slice(200, 250));
  await until("the lost ones were published", async () => ((await askReplay(replay, 0)).length > 0 ? true : undefined));
  losing = false;
  await put(rpc, keys.slice(250, 260));
  await agree(first, "after lost batches");
  await rpc.call("BatchRemove", keys.slice(50, 60), true, "");
  await master.kill();
  rpc.close();
  await master.start();
  rpc = await master.rpc();
  await mount(rpc);
  await agree(first, "after a kill");
  await put(rpc, keys.slice(260, 300));
  await rpc.call("BatchRemove", keys.slice(60, 70), true, "");
  await agree(first, "after more changes");
  await using second = await startIndexer(live, replay);
  await agree(second, "an indexer that came late");
  rpc.close();
  removeHome(home);
});

void test("a subscriber too far behind gets one stored event for each key, and then new events", async () => {
  const home = makeHome();
  await using master = await startPublishing(home, [...PATIENT, "--kv_events_queue_capacity=128"]);
  const rpc = await master.rpc();
  await mount(rpc);
  for (let at = 0; at < 20; at++) await put(rpc, numbers(at * 100, 100));
  await rpc.call("BatchRemove", numbers(0, 500), true, "");
  const { replay } = endpointsIn(home);
  for (const from of [0, 1, 5]) {
    const batches = await askReplay(replay, from);
    const sequences = batches.map(({ sequence }) => sequence);
    assert.ok(sequences.every((sequence, at) => sequence >= from && (at === 0 || sequence >= (sequences[at - 1] as number))));
    const held = new Set<string>();
    for (const event of batches.flatMap(({ events }) => events)) {
      if (event.event_type === "stored") held.add(event.object_key);
      else held.delete(event.object_key);
    }
    assert.deepEqual(
      [...held].map(Number).sort((a, b) => a - b),
      numbers(500, 1500).map(Number),
    );
  }
  rpc.close();
  removeHome(home);
});

void test("a subscriber that reads nothing costs the master a bounded amount, and others nothing", async () => {
  const home = makeHome();
  await using master = await startPublishing(home, [...PATIENT, "--store.kv_events_send_queue_batches=50", "--kv_events_queue_capacity=2000"]);
  const deaf = new Subscriber({ linger: 0, receiveHighWaterMark: 1, receiveBufferSize: 4096 });
  deaf.subscribe("");
  deaf.connect(endpointsIn(home).live);
  using listener = subscribe(endpointsIn(home).live);
  const rpc = await master.rpc();
  await mount(rpc);
  await heard(rpc, listener);
  const resident = () => Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${master.pid}/status`, "utf8"))?.[1]) / 1024;
  const round = async () => {
    for (let at = 0; at < 40; at++) {
      await put(rpc, numbers(at * 500, 500));
      await rpc.call("BatchRemove", numbers(at * 500, 500), true, "");
    }
  };
  await round();
  const before = resident();
  for (let at = 0; at < 3; at++) await round();
  assert.ok(resident() - before < 64, `${resident() - before} MiB more after 120,000 events that nobody took`);
  const last = listener.batches.at(-1)?.sequence ?? 0;
  await put(rpc, ["after"]);
  await until("the other subscriber hears on", () => (listener.batches.some(({ sequence }) => sequence > last) ? true : undefined));
  deaf.close();
  rpc.close();
  removeHome(home);
});

for (const [given, missing] of [
  ["--kv_events_backend_id=pool", "kv_events_bind_endpoint"],
  ["--kv_events_bind_endpoint=tcp://127.0.0.1:1", "kv_events_backend_id"],
] as const)
  void test(`KV events without ${missing} are refused at the start, by the setting's name`, () => {
    const args = ["--disable-warning=ExperimentalWarning", MAIN, "--enable_kv_events=true", given, "--listen=127.0.0.1:0", "--home=/nonexistent"];
    const { status, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
    assert.equal(status, 1);
    assert.match(stderr, new RegExp(`setting store\\.${missing} .*expected .* since enable_kv_events is on`));
  });
