// Our client between a master and holders that are processes of their own.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { test } from "node:test";
import { Failure } from "@svc/contract/failures.ts";
import { until } from "@svc/harness/until.ts";
import { openClient, startClient } from "./client.ts";
import { metric } from "./folder.ts";
import { startMaster } from "./master.ts";

const MIB = 1 << 20;
const hash = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

void test("our client gets what it puts, with promises and synchronously, from memory of any kind", async () => {
  await using master = await startMaster();
  await using holder = await startClient(master, { segmentBytes: 64 * MIB });
  await using client = await openClient(master);
  assert.equal(await client.put("k1", Buffer.from("hello")), true);
  assert.equal(await client.put("k1", Buffer.from("another")), false, "values do not change");
  assert.equal((await client.get("k1"))?.toString(), "hello");
  assert.equal(client.getSync("k1")?.toString(), "hello");
  assert.equal(await client.get("nothing"), undefined);
  assert.equal(client.putSync("k2", Buffer.from("by the thread")), true);
  assert.equal(await holder.ask("get", "k2").then((text) => Buffer.from(text as string, "base64").toString()), "by the thread");
  const large = randomBytes(3 * MIB);
  assert.equal(await client.put("large", large), true);
  assert.equal(hash((await client.get("large")) as Buffer), hash(large));
  assert.equal(hash(client.getSync("large") as Buffer), hash(large));
  const area = new Uint8Array(8 * MIB);
  await client.registerBuffer(area);
  area.set(large, MIB);
  assert.equal(client.putSync("zero-copy", area.subarray(MIB, 2 * MIB)), true);
  assert.equal(client.getIntoSync("zero-copy", area.subarray(5 * MIB, 6 * MIB)), MIB);
  assert.equal(hash(area.subarray(5 * MIB, 6 * MIB)), hash(large.subarray(0, MIB)));
  assert.equal(client.getIntoSync("zero-copy", area.subarray(6 * MIB, 7 * MIB)), MIB, "the place is known now");
  assert.equal(hash(area.subarray(6 * MIB, 7 * MIB)), hash(large.subarray(0, MIB)));
  await assert.rejects(client.getInto("zero-copy", area.subarray(0, 100)), /INVALID_REQUEST|1048576/);
  assert.equal(await client.put("parts", [area.subarray(MIB, MIB + 10), Buffer.from("abc"), area.subarray(2 * MIB, 2 * MIB + 5)]), true);
  const into = [Buffer.alloc(7), area.subarray(0, 100)];
  assert.equal(await client.getInto("parts", into), 18);
  assert.equal(
    hash(Buffer.concat([into[0] as Buffer, area.subarray(0, 11)])),
    hash(Buffer.concat([large.subarray(0, 10), Buffer.from("abc"), large.subarray(MIB, MIB + 5)])),
  );
  await client.unregisterBuffer(area);
  await assert.rejects(client.put("", Buffer.from("x")), (error: Failure) => error.name === "INVALID_REQUEST" && error.details["storeCode"] === -600);
  await assert.rejects(client.put("empty", Buffer.alloc(0)), Failure);
  assert.equal(await client.put("Schlüssel 鍵", Buffer.from("unicode")), true);
  assert.equal((await holder.ask("exists", "Schlüssel 鍵")) as boolean, true);
});

void test("an object that does not fit keeps nothing else of its batch from being stored", async () => {
  await using master = await startMaster();
  await using _holder = await startClient(master, { segmentBytes: 64 * MIB });
  await using client = await openClient(master, { timeoutMs: 500 });
  const [value, last] = [randomBytes(MIB), randomBytes(MIB - 1)];
  const [before, tooLarge, after] = await client.putBatch([
    { key: "before", value },
    { key: "too large", value: Buffer.alloc(80 * MIB, 1) },
    { key: "after", value: last },
  ]);
  assert.deepEqual([before, after], [true, true]);
  assert.ok(tooLarge instanceof Failure && tooLarge.name === "CAPACITY_EXHAUSTED", String(tooLarge));
  assert.equal(hash((await client.get("after")) as Buffer), hash(last));
  assert.equal(await client.get("too large"), undefined);
});

void test("a put into a store without memory for it is refused long before the client's time limit", async () => {
  await using master = await startMaster();
  await using _holder = await startClient(master, { segmentBytes: 64 * MIB });
  await using client = await openClient(master, { timeoutMs: 3_600_000 });
  await assert.rejects(client.put("too large", Buffer.alloc(80 * MIB, 1)), (error: Failure) => error.name === "CAPACITY_EXHAUSTED");
  assert.equal(await client.put("small", Buffer.from("fits")), true);
});

void test("batches answer an outcome for each entry, a missing key among them", async () => {
  await using master = await startMaster();
  await using _holder = await startClient(master, { segmentBytes: 64 * MIB });
  await using client = await openClient(master);
  const values = Array.from({ length: 300 }, (_, at) => randomBytes(1000 + at));
  assert.deepEqual(new Set(await client.putBatch(values.map((value, at) => ({ key: `b${at}`, value })))), new Set([true]));
  assert.deepEqual(
    client.putBatchSync([
      { key: "b0", value: values[1] as Buffer },
      { key: "new", value: values[0] as Buffer },
    ]),
    [false, true],
  );
  const found = client.getBatchSync([...values.keys()].map((at) => `b${at}`));
  assert.deepEqual(
    found.map((each) => hash(each as Buffer)),
    values.map(hash),
  );
  const again = await client.getBatch(["b7", "nothing", "b8"]);
  assert.deepEqual(
    again.map((each) => (each instanceof Uint8Array ? each.length : each)),
    [1007, undefined, 1008],
  );
  const small = await client.getIntoBatch([
    { key: "b0", into: Buffer.alloc(2000) },
    { key: "b1", into: Buffer.alloc(10) },
  ]);
  assert.equal(small[0], 1000);
  assert.ok(small[1] instanceof Failure);
  assert.deepEqual(await client.existsBatch(["b0", "nothing"]), [true, false]);
  assert.deepEqual(
    (await client.removeBatch(["b0", "nothing"], true)).map((each) => each?.details["storeCode"]),
    [undefined, -704],
  );
});

void test("sizes, replicas, pins, groups, patterns and removal are as the caller requested", async () => {
  await using master = await startMaster({ flags: ["--default_kv_lease_ttl=500ms"] });
  await using first = await startClient(master, { segmentBytes: 16 * MIB });
  await using second = await startClient(master, { segmentBytes: 16 * MIB });
  await using client = await openClient(master);
  assert.equal(await client.put("twice", Buffer.from("x".repeat(100)), { replicas: 2 }), true);
  assert.deepEqual((await client.replicas("twice")).map(({ endpoint }) => endpoint).sort(), [first.name, second.name].sort());
  assert.equal(await client.size("twice"), 100);
  assert.equal(await client.size("nothing"), undefined);
  const { checksum } = (await client.stat("twice")) ?? {};
  const listed = (await (await fetch(`${master.url}/api/v1/objects`)).json()) as { objects: { key: string; checksum: string; replicas: number }[]; next: null };
  assert.deepEqual(
    listed.objects.map((each) => [each.key, each.checksum, each.replicas]),
    [["twice", checksum?.toString(16).padStart(16, "0"), 2]],
  );
  assert.equal(await client.put("there", Buffer.from("y"), { preferredSegments: [second.name] }), true);
  assert.deepEqual(
    (await client.replicas("there")).map(({ endpoint }) => endpoint),
    [second.name],
  );
  await assert.rejects(client.remove("there"), (error: Failure) => error.details["storeCode"] === -706);
  await until("the lease is over", async () =>
    client.remove("there").then(
      () => true as const,
      () => undefined,
    ),
  );
  assert.equal(await client.get("there"), undefined);
  const block = randomBytes(MIB);
  assert.equal(await client.put("hard", block, { hardPin: true }), true);
  assert.equal(await client.put("soft", block, { softPin: "enable" }), true);
  await client.putBatch(
    [1, 2, 3].map((at) => ({ key: `g${at}`, value: Buffer.from("g") })),
    { group: "g" },
  );
  for (let at = 0; at < 100; at++) {
    assert.equal(await client.put(`fill-${at}`, block), true, "eviction makes room");
    assert.equal(await client.exists("g2"), true, "reading one member keeps it");
  }
  assert.equal(hash((await client.get("hard")) as Buffer), hash(block));
  assert.equal(hash((await client.get("soft")) as Buffer), hash(block));
  assert.deepEqual(await client.existsBatch(["g1", "g2", "g3", "fill-0"]), [true, true, true, false]);
  assert.equal((await client.whyMissing("fill-0")).reason, "evicted");
  assert.equal(await client.removeMatching("^g[12]$", true), 2);
  assert.equal((await client.whyMissing("g1")).reason, "removed");
  assert.deepEqual([...(await client.replicasMatching("^g")).keys()], ["g3"]);
  const missed = (reason: string) => metric(master, `svc_store_misses_total{reason="${reason}"}`);
  const [removed, evicted] = await Promise.all(["removed", "evicted"].map(missed));
  assert.deepEqual(await client.existsBatch(["g1", "g2", "g3", "fill-0"]), [false, false, true, false]);
  assert.equal(await client.get("g1"), undefined);
  assert.deepEqual(await Promise.all(["removed", "evicted"].map(missed)), [(removed ?? 0) + 3, (evicted ?? 0) + 1], "each miss counts with its reason");
  assert.ok((await client.removeAll(true)) > 3);
  assert.equal(await client.exists("hard"), false);
});

void test("an upsert replaces, its writer reads it at once, and others once their lease on the old location is over", async () => {
  await using master = await startMaster({ flags: ["--default_kv_lease_ttl=1s"] });
  await using _holder = await startClient(master, { segmentBytes: 64 * MIB });
  await using writer = await openClient(master);
  await using reader = await openClient(master);
  await writer.put("k", Buffer.from("one"));
  assert.equal((await reader.get("k"))?.toString(), "one");
  await writer.upsert("k", Buffer.from("another"));
  assert.equal((await writer.get("k"))?.toString(), "another");
  const seen = new Set<string | undefined>();
  await until("the reader sees the new bytes", async () => {
    const found = (await reader.get("k"))?.toString();
    seen.add(found);
    return found === "another" ? true : undefined;
  });
  for (const each of seen) assert.ok(each === "one" || each === "another", `read ${each}`);
});

void test("objects of another layout are misses with that reason", async () => {
  await using master = await startMaster();
  await using _holder = await startClient(master, { segmentBytes: 64 * MIB });
  await using one = await openClient(master, { fingerprint: "fp8/16 tokens" });
  await using other = await openClient(master, { fingerprint: "bf16/16 tokens" });
  await using any = await openClient(master);
  await one.put("k", Buffer.from("bytes"));
  assert.equal((await one.get("k"))?.toString(), "bytes");
  assert.equal((await any.get("k"))?.toString(), "bytes", "a client without a fingerprint compares none");
  assert.equal(await other.get("k"), undefined);
  assert.equal((await other.whyMissing("k")).reason, "fingerprint");
});

void test("copy and move tasks are executed by our client, byte for byte", async () => {
  await using master = await startMaster();
  await using first = await startClient(master, { segmentBytes: 64 * MIB });
  await using second = await startClient(master, { segmentBytes: 64 * MIB });
  await using client = await openClient(master);
  const bytes = randomBytes(2 * MIB + 7);
  await client.put("c", bytes, { preferredSegments: [first.name] });
  const ended = async (id: string) => {
    const { status, message } = await client.task(id);
    return status === "succeeded" || status === "failed" ? { status, message } : undefined;
  };
  const copyID = await client.createCopyTask("c", [second.name]);
  const copied = await until("the copy has ended", async () => ended(copyID));
  assert.deepEqual(copied, { status: "succeeded", message: "" });
  assert.equal((await client.replicas("c")).length, 2);
  await client.put("m", bytes, { preferredSegments: [first.name] });
  const moveID = await client.createMoveTask("m", first.name, second.name);
  assert.deepEqual(await until("the move has ended", async () => ended(moveID)), { status: "succeeded", message: "" });
  assert.deepEqual(
    (await client.replicas("m")).map(({ endpoint }) => endpoint),
    [second.name],
  );
  const onto = client.createMoveTask("m", second.name, second.name);
  await assert.rejects(onto, (error: Failure) => error.details["storeCode"] === -600, "its only copy would go");
  assert.equal(hash((await client.get("m")) as Buffer), hash(bytes));
  await assert.rejects(client.createCopyTask("nothing", [second.name]), (error: Failure) => error.details["storeCode"] === -704);
});

void test("the client's own HTTP reports its version, whether the master knows it, and its metrics", async () => {
  await using master = await startMaster();
  await using client = await openClient(master, { segmentBytes: MIB, enableClientHttpServer: true, clientHttpPort: 0 });
  await client.put("k", Buffer.from("x"));
  const url = `http://127.0.0.1:${client.httpPort}`;
  assert.deepEqual(await (await fetch(`${url}/version`)).json(), await (await fetch(`${master.url}/version`)).json());
  assert.deepEqual(await (await fetch(`${url}/health`)).json(), { status: "healthy", code: 0 });
  assert.match(await (await fetch(`${url}/metrics`)).text(), /^svc_store_client_stored_total 1$/m);
  assert.equal((await fetch(`${url}/other`)).status, 404);
  assert.equal(await client.health(), true);
  await master.kill();
  await until("it says that the master is gone", async () => ((await fetch(`${url}/health`)).status === 503 ? true : undefined));
  assert.equal(await client.health(), false);
});
