// SIGKILL of the holder of a NOF segment, also with the master: the next process to mount the file in time has its objects.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { type ClientProcess, openClient, startClient } from "./client.ts";
import { startMaster, type TestMaster } from "./master.ts";
import { MIB, nofDetails, nofEntry, nofFlags } from "./nof.ts";
import { bytesOf, makeFolder } from "./ssd.ts";

const only = { replicas: 0, nofReplicas: 1 };
const usedBytes = async (master: TestMaster) => (await nofDetails(master)).reduce((sum, each) => sum + each.allocator_used_bytes, 0);
const until0 = (master: TestMaster, what: string, wanted: number) => until(what, async () => ((await usedBytes(master)) === wanted ? true : undefined));

void test("a holder that is killed and started again with its file has all its objects, also after a kill of the master", async () => {
  await using folder = makeFolder();
  const nof = { file: join(folder.path, "namespace"), bytes: 32 * MIB };
  await using master = await startMaster({ flags: nofFlags() });
  let holder: ClientProcess = await startClient(master, { nof });
  try {
    await using client = await openClient(master, { timeoutMs: 60_000, leasesAhead: false });
    const keys = Array.from({ length: 40 }, (_, at) => `key-${at}`);
    for (const key of keys) assert.equal(await client.put(key, bytesOf(key, 100_001), only), true, key);
    const [before] = await nofDetails(master);
    for (const also of ["nobody", "the master", "the master, before the holder is back"]) {
      await holder.kill();
      if (also !== "nobody") await master.kill();
      if (also === "the master") await master.start();
      const starting = also.endsWith("back") ? master.start().then(() => startClient(master, { nof })) : startClient(master, { nof });
      holder = await starting;
      for (const key of keys) assert.ok((await client.get(key))?.equals(bytesOf(key, 100_001)), `${key} after a kill of the holder and of ${also}`);
      const [now] = await nofDetails(master);
      assert.deepEqual([now?.segment_name, now?.segment_id], [before?.segment_name, before?.segment_id]);
      assert.equal((await nofDetails(master)).length, 1);
      assert.equal(await client.put(`after ${also}`, bytesOf("later", 5000), only), true);
      await client.remove(`after ${also}`, true);
    }
    // A clean stop announces the end, and keeps the objects in the file.
    await holder.ask("close");
    assert.equal((await nofEntry(master, "key-0")).ok, false, "no reader is sent to a holder that left");
    await holder.kill();
    holder = await startClient(master, { nof });
    for (const key of keys) assert.ok((await client.get(key))?.equals(bytesOf(key, 100_001)), `${key} after a stop`);
    await until0(master, "the ranges of removed objects are free", before?.allocator_used_bytes ?? 0);
  } finally {
    await holder.kill();
  }
});

void test("a holder that stays away is lost after client_ttl: replicas in memory stay, and objects that lay only in its file are gone", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: nofFlags("--client_ttl=5s") });
  await using _memory = await startClient(master, { segmentBytes: 8 * MIB });
  const holder = await startClient(master, { nof: { file: join(folder.path, "namespace"), bytes: 8 * MIB } });
  await using client = await openClient(master);
  await client.put("both", bytesOf("both", 1000), { nofReplicas: 1 });
  await client.put("alone", bytesOf("alone", 1000), only);
  await holder.kill();
  assert.equal(await client.get("alone"), undefined);
  assert.ok((await client.get("both"))?.equals(bytesOf("both", 1000)));
  assert.equal(await client.put("new", bytesOf("new", 1000), { nofReplicas: 1 }), true, "a put goes on in memory");
  await until("the segment is gone", async () => ((await nofDetails(master)).length === 0 ? true : undefined));
  assert.equal((await nofEntry(master, "both")).nof_values, undefined);
  assert.equal((await nofEntry(master, "both")).values?.length, 1);
  assert.equal((await client.whyMissing("alone")).reason, "holder_lost");
  // Another process mounts its file too late, so it gets a new id and is empty.
  await using _late = await startClient(master, { nof: { file: join(folder.path, "namespace") } });
  assert.equal(await client.get("alone"), undefined);
  assert.equal(await usedBytes(master), 0);
});
