// The master's knowledge of NOF replicas after it was killed, and after a client ended at any step of a put.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { clientID, plain } from "./calls.ts";
import { openClient, startClient } from "./client.ts";
import { metric } from "./folder.ts";
import { startMaster, type TestMaster } from "./master.ts";
import { MIB, nofDetails, nofEntry, nofFlags } from "./nof.ts";
import { bytesOf, makeFolder } from "./ssd.ts";

const BLOCK = 4096;
const only = { replicas: 0, nofReplicas: 1 };
const usedBytes = async (master: TestMaster) => (await nofDetails(master)).reduce((sum, each) => sum + each.allocator_used_bytes, 0);
const until0 = (master: TestMaster, what: string, wanted: number) => until(what, async () => ((await usedBytes(master)) === wanted ? true : undefined));

void test("a master that is killed reads NOF replicas from its log and from a snapshot, and assigns no range twice", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: nofFlags("--store.log_file_bytes=65536", "--store.snapshot_log_bytes=65536") });
  await using _memory = await startClient(master, { segmentBytes: 8 * MIB });
  await using _holder = await startClient(master, { nof: { file: join(folder.path, "namespace"), bytes: 16 * MIB } });
  await using client = await openClient(master, { timeoutMs: 60_000, leasesAhead: false });
  const keys = Array.from({ length: 500 }, (_, at) => `key-${at}`);
  for (const key of keys) await client.put(key, bytesOf(key, 1000), { nofReplicas: 1 });
  await client.remove("key-7", true);
  await until("a snapshot was taken", async () => ((await metric(master, "svc_store_snapshots_total")) > 0 ? true : undefined));
  await until0(master, "all ranges are blocks", 499 * BLOCK);
  for (const round of [1, 2]) {
    await master.kill();
    await master.start();
    await until("the holders are back", async () =>
      (await nofDetails(master))[0]?.readable && (await nofEntry(master, "key-0")).values?.length === 1 ? true : undefined,
    );
    await until0(master, `all ranges are blocks after kill ${round}`, 499 * BLOCK);
    assert.equal((await nofEntry(master, "key-0")).nof_values?.length, 1);
    for (const key of [`a${round}`, `b${round}`]) await client.put(key, bytesOf(key, 60_000), only);
    for (const key of [`a${round}`, `b${round}`]) assert.ok((await client.get(key))?.equals(bytesOf(key, 60_000)), key);
    for (const key of [`a${round}`, `b${round}`]) await client.remove(key, true);
  }
  assert.equal(await client.get("key-7"), undefined);
  await _memory.kill("SIGTERM");
  await until("memory is gone", async () => ((await nofEntry(master, "key-0")).values?.length === 0 ? true : undefined));
  for (const key of keys.filter((each) => each !== "key-7")) assert.ok((await client.get(key))?.equals(bytesOf(key, 1000)), key);
  // With NOF turned off the replicas are forgotten, and the log continues without them.
  await master.kill();
  await master.start(["--enable_nof=false"]);
  assert.equal((await nofEntry(master, "key-0")).ok, false);
  assert.deepEqual(await nofDetails(master), []);
});

void test("a client that ends at any step of a put leaks no NOF range, and each kind of replica is readable once it has ended", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: nofFlags("--put_start_discard_timeout_sec=1") });
  await using _memory = await startClient(master, { segmentBytes: 8 * MIB });
  await using _holder = await startClient(master, { nof: { file: join(folder.path, "namespace"), bytes: 8 * MIB } });
  const rpc = await master.rpc();
  const config = { ...plain, nofReplicas: 1n };
  const meta = (key: string) => ({ key, checksum: undefined });
  const started = await rpc.call("PutStart", clientID, "begun", 5000n, config, "");
  assert.ok(started.ok);
  assert.deepEqual(
    started.value.map(({ place }) => place.type),
    ["memory", "nof"],
  );
  const lease = await rpc.call("LeaseExtents", clientID, 5000n, 1n, config, [], "");
  assert.ok(lease.ok);
  assert.deepEqual(
    lease.value.extents[0]?.ranges.map(({ protocol }) => protocol),
    ["tcp", "nvmeof"],
  );
  assert.equal(await usedBytes(master), 4 * BLOCK);
  for (const key of ["ended", "half", "revoked"]) assert.ok((await rpc.call("PutStart", clientID, key, 5000n, config, "")).ok);
  const [MEMORY, NOF, ALL] = [0, 3, 4];
  assert.ok((await rpc.call("PutEnd", clientID, meta("ended"), MEMORY, "")).ok);
  assert.deepEqual([(await nofEntry(master, "ended")).values?.length, (await nofEntry(master, "ended")).nof_values], [1, undefined]);
  assert.ok((await rpc.call("PutEnd", clientID, meta("ended"), NOF, "")).ok);
  assert.equal((await nofEntry(master, "ended")).nof_values?.length, 1);
  assert.ok((await rpc.call("PutEnd", clientID, meta("half"), NOF, "")).ok);
  assert.ok((await rpc.call("PutRevoke", clientID, "revoked", NOF, "")).ok);
  assert.ok((await rpc.call("PutEnd", clientID, meta("revoked"), ALL, "")).ok);
  assert.equal((await nofEntry(master, "revoked")).nof_values, undefined);
  assert.equal((await nofEntry(master, "revoked")).values?.length, 1);
  rpc.close();
  await master.kill();
  await master.start();
  await until("the holders are back", async () => {
    const { values = [], nof_values = [] } = await nofEntry(master, "ended");
    return values.length === 1 && nof_values.length === 1 ? true : undefined;
  });
  await until0(master, "ranges that were begun, leased or revoked are free, and ended ones are kept", 2 * 2 * BLOCK);
  const half = await nofEntry(master, "half");
  assert.deepEqual([half.values?.length, half.nof_values?.length], [0, 1], "its memory was never written");
  assert.equal((await nofEntry(master, "begun")).ok, false);
  assert.match(await (await fetch(`${master.url}/metrics`)).text(), /^svc_store_unfinished_puts 0$/m);
});
