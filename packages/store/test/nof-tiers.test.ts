// NOF replicas next to those in memory: evicted separately, copied and moved between the tiers, and dropped if their bytes are wrong.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { openClient, startClient } from "./client.ts";
import { metric } from "./folder.ts";
import { startMaster } from "./master.ts";
import { MIB, nofEntry, nofFlags } from "./nof.ts";
import { bytesOf, makeFolder } from "./ssd.ts";

void test("eviction works in each tier by itself: objects that leave NOF stay in memory, those that leave memory stay in NOF, and losing both ends the object", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: nofFlags() });
  await using _memory = await startClient(master, { segmentBytes: 64 * MIB });
  await using _holder = await startClient(master, { nof: { file: join(folder.path, "small"), bytes: 8 * MIB } });
  await using client = await openClient(master);
  const keys = Array.from({ length: 30 }, (_, at) => `both-${at}`);
  for (const key of keys) assert.equal(await client.put(key, bytesOf(key, MIB), { nofReplicas: 1 }), true);
  await until("NOF was evicted from", async () => ((await metric(master, "svc_store_nof_evicted_keys_total")) > 0 ? true : undefined));
  assert.equal(await metric(master, "svc_store_evicted_keys_total"), 0, "memory has room");
  for (const key of keys) assert.equal((await nofEntry(master, key)).values?.length, 1, key);
  for (const key of keys) assert.ok((await client.get(key))?.equals(bytesOf(key, MIB)), key);
  // From here on memory is the small tier.
  for (let at = 0; at < 120; at++) await until("there is room", () => client.put(`more-${at}`, bytesOf(`more-${at}`, MIB)).catch(() => undefined));
  const nofOnly = await until("an object lies in NOF alone", async () => {
    for (const key of keys) {
      const entry = await nofEntry(master, key);
      if (entry.ok && entry.values?.length === 0 && entry.nof_values?.length === 1) return key;
    }
    await client.put(`more-${Math.random()}`, bytesOf("x", MIB)).catch(() => undefined);
    return undefined;
  });
  assert.ok((await client.get(nofOnly))?.equals(bytesOf(nofOnly, MIB)));
  await until("it is evicted there as well", async () => {
    await client.put(`nof-${Math.random()}`, bytesOf("y", MIB), { replicas: 0, nofReplicas: 1 }).catch(() => undefined);
    return (await nofEntry(master, nofOnly)).ok ? undefined : true;
  });
  assert.equal((await client.whyMissing(nofOnly)).reason, "evicted");
});

void test("bytes that a NOF segment has lost are never returned: the replica is dropped, and the key can be stored again", async () => {
  await using folder = makeFolder();
  const file = join(folder.path, "namespace");
  await using master = await startMaster({ flags: nofFlags() });
  const memory = await startClient(master, { segmentBytes: 8 * MIB });
  await using _holder = await startClient(master, { nof: { file, bytes: 16 * MIB } });
  await using client = await openClient(master, { verifies: false });
  for (const key of ["damaged", "fine"]) await client.put(key, bytesOf(key, 50_000), { nofReplicas: 1 });
  const at = (await nofEntry(master, "damaged")).nof_values?.[0]?.buffer_descriptor.buffer_address_ ?? 0;
  const bytes = readFileSync(file);
  bytes[at + 25_000] = (bytes[at + 25_000] ?? 0) ^ 1;
  writeFileSync(file, bytes, { flag: "r+" });
  await memory.kill("SIGTERM");
  await until("memory is gone", async () => ((await nofEntry(master, "damaged")).values?.length === 0 ? true : undefined));
  assert.equal(await client.get("damaged"), undefined);
  assert.equal((await client.whyMissing("damaged")).reason, "checksum");
  assert.equal((await nofEntry(master, "damaged")).ok, false);
  assert.equal(await metric(master, "svc_store_nof_damaged_replicas_total"), 1);
  assert.ok((await client.get("fine"))?.equals(bytesOf("fine", 50_000)));
  assert.equal(await client.put("damaged", bytesOf("damaged", 50_000), { replicas: 0, nofReplicas: 1 }), true);
  assert.ok((await client.get("damaged"))?.equals(bytesOf("damaged", 50_000)));
});

void test("objects are copied and moved between memory and NOF segments by their names", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: nofFlags() });
  await using memory = await startClient(master, { segmentBytes: 8 * MIB });
  await using holder = await openClient(master, { nof: { file: join(folder.path, "namespace"), bytes: 16 * MIB } });
  await using client = await openClient(master, { knownPlaces: 0 });
  const nof = holder.nofSegment ?? "";
  const done = (id: string) =>
    until("the task ended", async () => {
      const { status, message } = await client.task(id);
      assert.notEqual(status, "failed", message);
      return status === "succeeded" ? true : undefined;
    });
  for (const key of ["copied", "moved"]) await client.put(key, bytesOf(key, 70_001));
  await done(await client.createCopyTask("copied", [nof]));
  await done(await client.createMoveTask("moved", memory.name, nof));
  assert.deepEqual([...(await client.holders("copied"))].sort(), [memory.name, nof].sort());
  assert.deepEqual(await client.holders("moved"), [nof]);
  assert.ok((await client.get("moved"))?.equals(bytesOf("moved", 70_001)));
  await done(await client.createMoveTask("moved", nof, memory.name));
  assert.deepEqual(await client.holders("moved"), [memory.name]);
  assert.ok((await client.get("moved"))?.equals(bytesOf("moved", 70_001)));
});

void test("unmounting a NOF segment ends objects that lie only there, at once or after its grace period; a drain empties it first, and memory is unaffected", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: nofFlags() });
  await using memory = await startClient(master, { segmentBytes: 16 * MIB });
  await using first = await openClient(master, { nof: { file: join(folder.path, "first"), bytes: 8 * MIB } });
  await using client = await openClient(master, { knownPlaces: 0, leasesAhead: false });
  const name = first.nofSegment ?? "";
  await client.put("both", bytesOf("both", 5000), { nofReplicas: 1 });
  await client.put("alone", bytesOf("alone", 5000), { replicas: 0, nofReplicas: 1 });
  const drain = async (body: object) => {
    const made = (await (await fetch(`${master.url}/api/v1/drain_jobs`, { method: "POST", body: JSON.stringify(body) })).json()) as { job_id: string };
    return until("the drain job ended", async () => {
      const answer = await fetch(`${master.url}/api/v1/drain_jobs/query?job_id=${made.job_id}`);
      const { status_name: status } = (await answer.json()) as { status_name: string };
      return status === "RUNNING" ? undefined : status;
    });
  };
  assert.equal(await drain({ segments: [name], target_segments: [memory.name] }), "SUCCEEDED");
  for (const key of ["both", "alone"]) {
    assert.deepEqual(await client.holders(key), [memory.name]);
    assert.ok((await client.get(key))?.equals(bytesOf(key, 5000)), key);
  }
  await using second = await openClient(master, { nof: { file: join(folder.path, "second"), bytes: 8 * MIB } });
  const id = (second.nofSegment ?? "").slice("nof/".length);
  await client.put("again", bytesOf("again", 5000), { nofReplicas: 1 });
  await client.put("single", bytesOf("single", 5000), { replicas: 0, nofReplicas: 1 });
  assert.deepEqual(await client.holders("single"), [second.nofSegment], "a drained segment takes nothing");
  await second.unmount(id, 2000);
  assert.ok((await client.get("single"))?.equals(bytesOf("single", 5000)), "readable in its grace");
  await assert.rejects(
    client.put("no", bytesOf("no", 10), { replicas: 0, nofReplicas: 1 }),
    (error: { details?: { storeCode?: number } }) => error.details?.storeCode === -200,
  );
  await until("the grace is over", async () => ((await nofEntry(master, "single")).ok ? undefined : true));
  const left = await nofEntry(master, "again");
  assert.deepEqual([left.values?.length, left.nof_values], [1, undefined]);
  assert.ok((await client.get("again"))?.equals(bytesOf("again", 5000)));
});
