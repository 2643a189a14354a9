// Mooncake's unmodified client on our master: every call that engines use, with holders in processes of their own.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { bytesOf, MIB, startHolder } from "./holder.ts";
import { startMaster } from "./master.ts";
import { startMetadataServer } from "./server.ts";

const needsWheel = needs("python-clients", "python3");
type Outcome = [[number, number], number];

/** Returns the endpoint for transfers to that segment. */
async function endpointOf(url: string, name: string): Promise<string> {
  const { segments } = (await (await fetch(`${url}/get_segments_detail`)).json()) as { segments: { segment_name: string; te_endpoint: string }[] };
  return segments.find((segment) => segment.segment_name === name)?.te_endpoint ?? "";
}

async function placesOf(url: string, key: string): Promise<string[]> {
  const { data } = (await (await fetch(`${url}/query_key?key=${key}`)).json()) as { data: { transport_endpoint_: string }[] };
  return data.map((replica) => replica.transport_endpoint_).sort();
}

void test("Mooncake's client puts, gets, lists and removes on our master", needsWheel, async () => {
  await using master = await startMaster();
  await using holder = await startHolder({ master: master.rpcPort });
  assert.equal(await holder.put("k1", "hello"), 0);
  assert.equal(await holder.get("k1"), "hello");
  assert.equal(await holder.put("k1", "another"), 0, "values do not change; the call is no error");
  assert.equal(await holder.get("k1"), "hello");
  assert.equal(await holder.get("nothing"), "");
  assert.deepEqual(await holder.call("batch_is_exist", ["k1", "nothing"]), [1, 0]);
  assert.equal(await holder.call("get_size", "k1"), 5);
  assert.equal(await holder.call("get_size", "nothing"), -704);
  assert.equal(await holder.call("put_batch", ["b1", "b2"], [bytesOf("one"), bytesOf("two")]), 0);
  assert.deepEqual(await holder.call("get_batch", ["b1", "b2", "b3"]), [bytesOf("one"), bytesOf("two"), bytesOf("")]);
  assert.equal(await holder.call("put_parts", "parts", bytesOf("ab"), bytesOf("cd")), 0);
  assert.equal(await holder.get("parts"), "abcd");
  assert.equal(await holder.put("k0", "", {}), -600, "an empty value is refused");
  assert.equal(await holder.put("k0", "x", { replica_num: 0 }), -600, "and so are no replicas at all");
  assert.equal(await holder.call("remove", "b1"), -706, "a key that was just read is leased");
  assert.equal(await holder.call("remove", "b1", true), 0);
  assert.equal(await holder.call("remove", "b1", true), -704);
  assert.deepEqual(await holder.call("batch_remove", ["b2", "b1"], true), [0, -704]);
  assert.equal(await holder.put("re-1", "x"), 0);
  assert.equal(await holder.put("re-2", "x"), 0);
  assert.equal(await holder.call("remove_by_regex", "^re-[12]$", true), 2);
  assert.equal(await holder.call("upsert", "k1", bytesOf("other")), 0);
  assert.equal(await holder.get("k1"), "other");
  assert.equal(await holder.call("upsert", "k1", bytesOf("of another size")), 0);
  assert.equal(await holder.get("k1"), "of another size");
  assert.equal(await holder.call("upsert_batch", ["k1", "k2"], [bytesOf("1"), bytesOf("2")]), 0);
  assert.deepEqual(await holder.call("get_batch", ["k1", "k2"]), [bytesOf("1"), bytesOf("2")]);
  assert.equal(await holder.call("health_check"), 0);
  assert.ok((await holder.call<number>("remove_all", true)) >= 3);
  assert.equal(await holder.get("k1"), "");
  assert.equal(await holder.call("close"), 0);
  await until("its segment goes", async () => ((await (await fetch(`${master.url}/get_all_segments`)).text()) === "" ? true : undefined));
});

void test("zero-copy and multi-buffer calls of Mooncake's client transfer the exact bytes between two holders", needsWheel, async () => {
  await using master = await startMaster();
  await using writer = await startHolder({ master: master.rpcPort });
  await using reader = await startHolder({ master: master.rpcPort });
  for (const holder of [writer, reader]) assert.equal(await holder.ask({ op: "allocate", buffer: "area", length: 4 * MIB }), 0);
  const hashes: string[] = [];
  for (let at = 0; at < 4; at++) hashes.push(await writer.ask({ op: "fill", buffer: "area", at: at * MIB, length: MIB }));
  const place = (at: number) => ({ buffer: "area", at: at * MIB });
  assert.equal(await writer.call("put_from", "one", place(0), MIB), 0);
  assert.equal(await reader.call("get_into", "one", place(3), MIB), MIB);
  assert.equal(await reader.ask({ op: "hash", buffer: "area", at: 3 * MIB, length: MIB }), hashes[0]);
  assert.equal(await reader.call("get_into", "one", place(3), 10), -600, "a buffer that is too small is refused");
  assert.deepEqual(await writer.call("batch_put_from", ["two", "three"], [place(1), place(2)], [MIB, MIB]), [0, 0]);
  assert.deepEqual(await reader.call("batch_get_into", ["two", "three", "nothing"], [place(0), place(1), place(2)], [MIB, MIB, MIB]), [MIB, MIB, -704]);
  assert.equal(await reader.ask({ op: "hash", buffer: "area", at: 0, length: MIB }), hashes[1]);
  assert.equal(await reader.ask({ op: "hash", buffer: "area", at: MIB, length: MIB }), hashes[2]);
  assert.deepEqual(await writer.call("batch_put_from_multi_buffers", ["multi"], [[place(0), place(3)]], [[MIB, MIB]]), [0]);
  assert.deepEqual(await reader.call("batch_get_into_multi_buffers", ["multi"], [[place(2), place(0)]], [[MIB, MIB]]), [2 * MIB]);
  assert.equal(await reader.ask({ op: "hash", buffer: "area", at: 2 * MIB, length: MIB }), hashes[0]);
  assert.equal(await reader.ask({ op: "hash", buffer: "area", at: 0, length: MIB }), hashes[3]);
});

void test("replicas, groups and pins that Mooncake's client requests are respected", needsWheel, async () => {
  await using master = await startMaster({ flags: ["--default_kv_lease_ttl=200ms", "--store.max_kv_soft_pin_ttl_ms=3600000"] });
  await using first = await startHolder({ master: master.rpcPort, segmentBytes: 16 * MIB });
  await using second = await startHolder({ master: master.rpcPort, segmentBytes: 16 * MIB });
  assert.equal(await first.put("twice", "x".repeat(100), { replica_num: 2 }), 0);
  assert.equal(new Set(await placesOf(master.url, "twice")).size, 2, "two replicas lie with two holders");
  assert.equal(await first.put("there", "y", { preferred_segment: await second.name() }), 0);
  assert.deepEqual(await placesOf(master.url, "there"), [await endpointOf(master.url, await second.name())]);
  const block = "z".repeat(MIB);
  assert.equal(await first.put("hard", block, { with_hard_pin: true }), 0);
  assert.equal(await first.put("soft", block, { soft_pin_action: 1 }), 0);
  assert.equal(await first.call("put_batch", ["g1", "g2", "g3"], ["1", "2", "3"].map(bytesOf), { config: { group_ids: ["g", "g", "g"] } }), 0);
  for (let at = 0; at < 120; at++) {
    await until(`eviction makes room for put ${at}`, async () => ((await first.put(`fill-${at}`, block)) === 0 ? true : undefined));
    assert.equal(await first.call("is_exist", "g2"), 1, "reading one member keeps it");
  }
  assert.equal((await first.get("hard")).length, MIB);
  assert.equal((await first.get("soft")).length, MIB);
  assert.deepEqual(await first.call("batch_is_exist", ["g1", "g2", "g3", "fill-0"]), [1, 1, 1, 0], "the group stays as a whole, the oldest left");
});

void test("copy and move tasks are executed by Mooncake's clients", needsWheel, async () => {
  await using master = await startMaster();
  await using first = await startHolder({ master: master.rpcPort });
  await using second = await startHolder({ master: master.rpcPort });
  const [from, to] = [await first.name(), await second.name()];
  assert.equal(await first.put("k", "some bytes", { preferred_segment: from }), 0);
  const [near, far] = [await endpointOf(master.url, from), await endpointOf(master.url, to)];
  const [, copied] = await first.call<Outcome>("create_copy_task", "k", [to]);
  assert.equal(copied, 0);
  await until("the copy is there", async () => ((await placesOf(master.url, "k")).length === 2 ? true : undefined));
  assert.deepEqual(await placesOf(master.url, "k"), [near, far].sort());
  assert.equal(await first.put("m", "moved bytes", { preferred_segment: from }), 0);
  const [, moved] = await first.call<Outcome>("create_move_task", "m", from, to);
  assert.equal(moved, 0);
  await until("it lies in the other place alone", async () => ((await placesOf(master.url, "m")).join() === far ? true : undefined));
  assert.equal(await first.get("m"), "moved bytes");
  const [, unknown] = await first.call<Outcome>("create_copy_task", "nothing", [to]);
  assert.equal(unknown, -704);
});

void test("with our metadata server, named holders find each other", needsWheel, async () => {
  await using master = await startMaster();
  await using metadata = await startMetadataServer();
  await using first = await startHolder({ master: master.rpcPort, metadata: metadata.url, name: "127.0.0.1" });
  await using second = await startHolder({ master: master.rpcPort, metadata: metadata.url, name: "127.0.0.1" });
  assert.equal(await first.put("k", "far away", { preferred_segment: await second.name() }), 0);
  assert.equal(await second.get("k"), "far away");
  assert.equal(await first.get("k"), "far away");
});

void test("after a SIGKILL of a holder its keys are misses at once, and puts go to the other one", needsWheel, async () => {
  await using master = await startMaster();
  await using stays = await startHolder({ master: master.rpcPort });
  await using dies = await startHolder({ master: master.rpcPort });
  const there = await dies.name();
  await until("the master reached it once", async () => (master.log().includes("lost") ? undefined : true));
  for (let at = 0; at < 20; at++) assert.equal(await stays.put(`k${at}`, "x", { preferred_segment: there }), 0);
  await dies.kill();
  let failed = 0;
  for (let at = 0; at < 200; at++) failed += (await stays.put(`after-${at}`, "y")) === 0 ? 0 : 1;
  assert.ok(failed <= 10, `${failed} of 200 puts failed after a holder was killed`);
  await until("nobody is sent to the dead holder", async () => ((await stays.call("is_exist", "k0")) === 0 ? true : undefined));
  for (let at = 0; at < 200; at += 20) if ((await stays.call("is_exist", `after-${at}`)) === 1) assert.equal(await stays.get(`after-${at}`), "y");
});
