// A folder that stops answering, even for reads, under each kind of file in the store: no call waits longer than its bound, and nothing is lost.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { needsHangingFolder, startHangingFolder } from "@svc/harness/hanging-folder.ts";
import { until } from "@svc/harness/until.ts";
import type { StoreClient } from "../src/client/store-client.ts";
import { openClient, startClient } from "./client.ts";
import { entryOf, folderFlags, MIB, metric } from "./folder.ts";
import { startMaster } from "./master.ts";
import { bytesOf, makeFolder } from "./ssd.ts";

/** The bound of a get or put: ten times the longest wait of a client. */
const BOUND_MS = 20_000;
const TIMEOUT_MS = 2000;

async function bounded<T>(work: Promise<T>): Promise<T | Error> {
  const timer = Promise.withResolvers<never>();
  const late = setTimeout(() => timer.reject(new Error("it waits for the folder")), BOUND_MS);
  try {
    return await Promise.race([work.catch((error: Error) => error), timer.promise]);
  } finally {
    clearTimeout(late);
  }
}

/** The key is a miss or a failure, within the bound and without wrong bytes. */
async function isMissed(client: StoreClient, key: string): Promise<void> {
  const found = await bounded(client.get(key));
  assert.ok(found === undefined || found instanceof Error, `${key} was read from a folder that does not answer`);
}

const stillWorks = async (client: StoreClient, key: string) => {
  assert.equal(await bounded(client.put(key, bytesOf(key, 1000))), true, key);
  assert.ok(((await bounded(client.get(key))) as Buffer | undefined)?.equals(bytesOf(key, 1000)), key);
};

for (const trouble of ["hang", "refuse"] as const)
  void test(
    `a shared folder that ${trouble === "hang" ? "stops answering" : "answers EACCES"} costs puts only their file, and its files are readable again later`,
    needsHangingFolder,
    async () => {
      await using folder = await startHangingFolder();
      await using master = await startMaster({ flags: folderFlags(folder.path) });
      await using client = await openClient(master, { segmentBytes: 4 * MIB, timeoutMs: TIMEOUT_MS, knownPlaces: 0 });
      assert.equal(await client.put("old", bytesOf("old", MIB)), true);
      await until("it is a file", async () => ((await entryOf(master, "old")).disk_values?.length === 1 ? true : undefined));
      let at = 0;
      await until("memory has it no more", async () => {
        await client.put(`fill-${at++}`, bytesOf("fill", MIB)).catch(() => undefined);
        return (await entryOf(master, "old")).values?.length === 0 ? true : undefined;
      });
      assert.ok((await client.get("old"))?.equals(bytesOf("old", MIB)));
      await using _trouble = await folder[trouble]();
      await isMissed(client, "old");
      for (const key of ["a", "b", "c"]) await stillWorks(client, `${key}-during`);
      await isMissed(client, "old");
      assert.equal((await entryOf(master, "old")).ok, true, "the master answers, and knows the object");
      assert.ok((await folder.go()) > 0, "somebody asked for something there");
      await until("it is read again", async () => ((await client.get("old").catch(() => undefined))?.equals(bytesOf("old", MIB)) ? true : undefined));
      await until("files are stored again", async () => {
        const key = `later-${at++}`;
        await client.put(key, bytesOf(key, 1000)).catch(() => undefined);
        return (await entryOf(master, key)).disk_values?.length === 1 ? true : undefined;
      });
    },
  );

void test(
  "an SSD tier whose folder stops answering, even for reads, is unmounted, puts continue, and its objects are readable again later",
  needsHangingFolder,
  async () => {
    await using folder = await startHangingFolder();
    await using master = await startMaster({ flags: ["--enable_offload=true", "--default_kv_lease_ttl=200"] });
    await using _holder = await startClient(master, { segmentBytes: 4 * MIB, ssdFolder: join(folder.path, "objects"), ssdBytes: 64 * MIB });
    await using client = await openClient(master, { timeoutMs: TIMEOUT_MS, knownPlaces: 0 });
    // This reader blocks its thread and never read there before; it has a process of its own, since nothing here could wake it.
    await using holding = await startClient(master, { timeoutMs: TIMEOUT_MS, knownPlaces: 0 });
    const readHolding = (key: string) => bounded(holding.ask<string | null>("getSync", key));
    const disks = async () => ((await (await fetch(`${master.url}/api/v1/disks`)).json()) as { disks: unknown[] }).disks.length;
    assert.equal(await client.put("old", bytesOf("old", MIB)), true);
    await until("it is on disk", async () => ((await metric(master, "svc_store_offloaded_keys_total")) >= 1 ? true : undefined));
    let at = 0;
    await until("memory has it no more", async () => {
      await client.put(`fill-${at++}`, bytesOf("fill", MIB)).catch(() => undefined);
      const entry = await entryOf(master, "old");
      return entry.values?.length === 0 && entry.local_disk_values?.length === 1 ? true : undefined;
    });
    assert.ok((await client.get("old"))?.equals(bytesOf("old", MIB)));
    await using _hung = await folder.hang();
    const held = await readHolding("old");
    assert.ok(held === null || held instanceof Error, `getSync: ${held}`);
    assert.equal(await client.put("beside", bytesOf("beside", 1000)), true);
    assert.equal(await readHolding("beside"), bytesOf("beside", 1000).toString("base64"), "it reads on elsewhere");
    await isMissed(client, "old");
    await until("the disk is withdrawn", async () => {
      await stillWorks(client, `during-${at++}`);
      return (await disks()) === 0 ? true : undefined;
    });
    await isMissed(client, "old");
    assert.ok((await folder.go()) > 0);
    await until("the disk is mounted again", async () => ((await disks()) === 1 ? true : undefined));
    await until("it is read again", async () => ((await client.get("old").catch(() => undefined))?.equals(bytesOf("old", MIB)) ? true : undefined));
    await until("by the one that holds its thread, too", async () =>
      (await readHolding("old")) === bytesOf("old", MIB).toString("base64") ? true : undefined,
    );
  },
);

void test("a NOF segment whose file stops answering costs puts that replica, and is readable again later", needsHangingFolder, async () => {
  await using folder = await startHangingFolder();
  await using other = makeFolder();
  await using master = await startMaster({
    flags: ["--enable_nof=true", "--default_kv_lease_ttl=200", "--store.suspect_after_ms=600000", "--client_ttl=600s"],
  });
  await using _memory = await startClient(master, { segmentBytes: 8 * MIB });
  await using _holder = await startClient(master, { nof: { file: join(folder.path, "namespace"), bytes: 16 * MIB } });
  await using client = await openClient(master, { timeoutMs: 2 * TIMEOUT_MS, knownPlaces: 0, leasesAhead: false });
  const only = { replicas: 0, nofReplicas: 1 };
  const keys = Array.from({ length: 4 }, (_, at) => `old-${at}`);
  for (const key of keys) assert.equal(await client.put(key, bytesOf(key, 100_000), only), true);
  await using _second = await startClient(master, { nof: { file: join(other.path, "namespace"), bytes: 16 * MIB } });
  await using _hung = await folder.hang();
  let missed = 0;
  for (const key of keys) {
    const found = await bounded(client.get(key));
    if (found instanceof Buffer) assert.ok(found.equals(bytesOf(key, 100_000)), key);
    else missed++;
  }
  assert.equal(missed, keys.length, "all of them lie there");
  for (const key of ["a", "b", "c"]) await stillWorks(client, `${key}-memory`);
  for (const key of ["a", "b", "c"]) assert.equal(await bounded(client.put(`${key}-nof`, bytesOf(key, 1000), only)), true, "the other NOF segment takes it");
  assert.ok((await folder.go()) > 0);
  for (const key of keys)
    await until(`${key} is read again`, async () => ((await client.get(key).catch(() => undefined))?.equals(bytesOf(key, 100_000)) ? true : undefined));
});
