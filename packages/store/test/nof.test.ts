// NVMe over Fabrics replicas, with a file in place of a namespace: how they are written, read, evicted, removed and shown.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { openClient, startClient } from "./client.ts";
import { startMaster } from "./master.ts";
import { MIB, nofDetails, nofEntry, nofFlags } from "./nof.ts";
import { bytesOf, makeFolder } from "./ssd.ts";

void test("a put with nofReplicas writes memory and a NOF segment, and readers use the second once the first is gone", async () => {
  await using folder = makeFolder();
  const file = join(folder.path, "namespace");
  await using master = await startMaster({ flags: nofFlags() });
  const memory = await startClient(master, { segmentBytes: 8 * MIB });
  await using _holder = await startClient(master, { nof: { file, bytes: 16 * MIB } });
  await using writer = await openClient(master);
  await using reader = await openClient(master, { knownPlaces: 0, verifies: false });
  for (const [key, size] of [
    ["one", 5],
    ["two", MIB + 77],
    ["three", 4096],
  ] as const)
    assert.equal(await writer.put(key, bytesOf(key, size), { nofReplicas: 1 }), true, key);
  assert.equal(await writer.put("plain", bytesOf("plain", 100)), true);
  const entry = await nofEntry(master, "two");
  assert.equal(entry.values?.length, 1);
  const [value, other] = entry.nof_values ?? [];
  assert.equal(other, undefined);
  const { buffer_descriptor: buffer } = value as NonNullable<typeof value>;
  assert.deepEqual([buffer.size_, buffer.protocol_, buffer.transport_endpoint_], [MIB + 77, "nvmeof", value?.transport_endpoint_]);
  assert.match(value?.transport_endpoint_ ?? "", /^nvmeof\/127\.0\.0\.1:\d+\/nof-/);
  const at = buffer.buffer_address_;
  assert.ok(
    readFileSync(file)
      .subarray(at, at + MIB + 77)
      .equals(bytesOf("two", MIB + 77)),
    "the file has the object's bytes there",
  );
  assert.equal("disk_values" in entry || "local_disk_values" in entry, false);
  assert.equal("nof_values" in (await nofEntry(master, "plain")), false);
  const { data } = (await (await fetch(`${master.url}/query_key?key=two`)).json()) as { data: { protocol_: string }[] };
  assert.deepEqual(
    data.map(({ protocol_ }) => protocol_),
    ["tcp"],
    "query_key shows memory alone",
  );
  const info = await reader.stat("two");
  assert.deepEqual([info?.sizeBytes, info?.replicas.length, info?.nofReplicas.length], [MIB + 77, 1, 1]);

  await memory.kill("SIGTERM");
  await until("memory is gone", async () => ((await nofEntry(master, "two")).values?.length === 0 ? true : undefined));
  assert.equal((await nofEntry(master, "plain")).ok, false);
  for (const [key, size] of [
    ["one", 5],
    ["two", MIB + 77],
    ["three", 4096],
  ] as const)
    assert.ok((await reader.get(key))?.equals(bytesOf(key, size)), key);
  const into = Buffer.alloc(2 * MIB);
  assert.equal(reader.getIntoSync("two", into), MIB + 77);
  assert.ok(into.subarray(0, MIB + 77).equals(bytesOf("two", MIB + 77)));
  assert.equal(await reader.put("alone", bytesOf("alone", 9000), { replicas: 0, nofReplicas: 1 }), true);
  assert.equal(writer.putSync("at once", bytesOf("at once", 9000), { nofReplicas: 1 }), true, "without memory it lies in the NOF segment alone");
  assert.ok((await reader.get("at once"))?.equals(bytesOf("at once", 9000)));
  await reader.upsert("one", bytesOf("new", 6), { replicas: 0, nofReplicas: 1 });
  assert.ok((await reader.get("one"))?.equals(bytesOf("new", 6)));
  for (const key of ["one", "two", "three", "alone", "at once"]) await reader.remove(key, true);
  await until("its room is free again", async () => ((await nofDetails(master))[0]?.allocator_used_bytes === 0 ? true : undefined));
  assert.equal(await reader.get("two"), undefined);
});

void test("without enable_nof a put that requests a NOF replica is refused with -600, and a NOF segment with -1012", async () => {
  await using folder = makeFolder();
  const file = join(folder.path, "namespace");
  await using master = await startMaster();
  await using client = await openClient(master, { segmentBytes: 4 * MIB });
  await assert.rejects(
    client.put("a", bytesOf("a", 10), { nofReplicas: 1 }),
    (error: { details?: { storeCode?: number } }) => error.details?.storeCode === -600,
  );
  await assert.rejects(openClient(master, { nof: { file, bytes: MIB } }), (error: { details?: { storeCode?: number } }) => error.details?.storeCode === -1012);
  assert.equal(await client.put("a", bytesOf("a", 10)), true);
});

void test("without a NOF segment that has capacity, a put gets fewer replicas; one that requests nothing else is refused with -200", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: nofFlags() });
  await using client = await openClient(master, { segmentBytes: 16 * MIB, timeoutMs: 1000 });
  const refused = (error: { details?: { storeCode?: number } }) => error.details?.storeCode === -200;
  assert.equal(await client.put("a", bytesOf("a", 10), { nofReplicas: 2 }), true);
  assert.equal((await nofEntry(master, "a")).values?.length, 1);
  await assert.rejects(client.put("b", bytesOf("b", 10), { replicas: 0, nofReplicas: 1 }), refused);
  await assert.rejects(client.put("b", bytesOf("b", 10), { replicas: 0 }), (error: { details?: { storeCode?: number } }) => error.details?.storeCode === -600);
  await using _holder = await startClient(master, { nof: { file: join(folder.path, "namespace"), bytes: MIB } });
  assert.equal(await client.put("large", bytesOf("large", 2 * MIB), { nofReplicas: 1 }), true);
  assert.equal((await nofEntry(master, "large")).nof_values, undefined);
  await assert.rejects(client.put("c", bytesOf("c", 2 * MIB), { replicas: 0, nofReplicas: 1 }), refused);
  assert.equal(await client.put("d", bytesOf("d", 10), { replicas: 0, nofReplicas: 1 }), true);
});

void test("a file that has other contents, is too small or is in use is refused as a NOF segment and left unchanged", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: nofFlags() });
  const path = (name: string) => join(folder.path, name);
  writeFileSync(path("other"), Buffer.concat([Buffer.alloc(65_536), Buffer.from("_BHRfS_M"), Buffer.alloc(MIB)]));
  writeFileSync(path("small"), Buffer.alloc(4096));
  const before = readFileSync(path("other"));
  await assert.rejects(openClient(master, { nof: { file: path("other") } }), { name: "SETTING_INVALID", message: /holds something else/ });
  assert.ok(readFileSync(path("other")).equals(before));
  await assert.rejects(openClient(master, { nof: { file: path("small") } }), { name: "SETTING_INVALID", message: /8192 bytes or more/ });
  await assert.rejects(openClient(master, { nof: { file: path("absent") } }), { name: "SETTING_INVALID", message: /absent/ });
  await assert.rejects(openClient(master, { nof: { file: folder.path } }), { name: "SETTING_INVALID" });
  await assert.rejects(openClient(master, { nof: { file: "relative", bytes: MIB } }), { name: "SETTING_INVALID", message: /absolute/ });
  await using _holder = await startClient(master, { nof: { file: path("mine"), bytes: MIB } });
  await assert.rejects(openClient(master, { nof: { file: path("mine") } }), { name: "SETTING_INVALID", message: /another process has it/ });
});
