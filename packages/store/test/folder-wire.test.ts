// The shared folder as Mooncake's clients use it, with PutStart, PutEnd and PutRevoke of each kind of replica, and with lost writers.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { test } from "node:test";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { until } from "@svc/harness/until.ts";
import type { RpcClient } from "../src/rpc/client.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { openClient } from "./client.ts";
import { entryOf, filesBelow, folderFlags, MIB, metric, untilFiles } from "./folder.ts";
import { endpointsIn, subscribe } from "./kv-listeners.ts";
import { startMaster, type TestMaster } from "./master.ts";
import { makeFolder } from "./ssd.ts";

const [MEMORY, DISK, ALL] = [0, 1, 4];
const other = "00000000-0000-0001-0000-000000000003";
const gone = { ok: false, code: -704 };
const notReady = { ok: false, code: -703 };

/** Mounts a holder that lives as long as the test; its memory has no bytes. */
async function holding(master: TestMaster): Promise<RpcClient> {
  const rpc = await master.rpc();
  assert.equal((await rpc.call("MountSegment", segmentOf(1, 1n << 20n), clientID)).ok, true);
  return rpc;
}

async function started(rpc: RpcClient, key: string, verb: "PutStart" | "UpsertStart" = "PutStart"): Promise<string> {
  const answer = await rpc.call(verb, clientID, key, 100n, plain, "");
  assert.ok(answer.ok);
  assert.deepEqual(
    answer.value.map(({ place, status }) => [place.type, status]),
    [
      ["memory", 2],
      ["disk", 2],
    ],
  );
  const [, file] = answer.value;
  assert.ok(file?.place.type === "disk" && file.place.sizeBytes === 100n);
  return file.place.path;
}
const end = (rpc: RpcClient, key: string, type: number) => rpc.call("PutEnd", clientID, { key, checksum: undefined }, type, "");
const placesOf = async (rpc: RpcClient, key: string) => {
  const answer = await rpc.call("GetReplicaList", key, "");
  return answer.ok ? answer.value.replicas.map(({ place }) => place.type) : answer.code;
};
function write(path: string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, Buffer.alloc(100, 7));
}

void test("clients learn the folder and its quota, and each kind of replica is ended by a call of its own", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: folderFlags(folder.path, "--quota_bytes=1000000", "--client_ttl=600s", "--store.suspect_after_ms=600000") });
  const rpc = await holding(master);
  const root = `${folder.path}/svc_cluster`;
  assert.deepEqual(await rpc.call("GetStorageConfig"), { ok: true, value: { root, evictsDisk: true, quotaBytes: 1_000_000n } });
  assert.deepEqual(await rpc.call("GetFsdir"), { ok: true, value: root });

  write(await started(rpc, "k"));
  assert.equal((await end(rpc, "k", ALL)).ok, true);
  assert.deepEqual(await placesOf(rpc, "k"), ["memory"], "the end of all is not that of the file, which is written meanwhile");
  assert.deepEqual(await rpc.call("Remove", "k", true, ""), notReady);
  assert.equal((await end(rpc, "k", DISK)).ok, true);
  assert.equal((await end(rpc, "k", DISK)).ok, true, "an answer that was lost");
  assert.deepEqual(await placesOf(rpc, "k"), ["memory", "disk"]);
  assert.deepEqual(await rpc.call("PutRevoke", clientID, "k", DISK, ""), { ok: false, code: -700 });

  write(await started(rpc, "file first"));
  assert.equal((await end(rpc, "file first", DISK)).ok, true);
  assert.deepEqual(await placesOf(rpc, "file first"), ["disk"]);
  assert.equal((await end(rpc, "file first", MEMORY)).ok, true);
  assert.deepEqual(await placesOf(rpc, "file first"), ["memory", "disk"]);

  await started(rpc, "no file");
  assert.equal((await end(rpc, "no file", MEMORY)).ok, true);
  assert.deepEqual(await rpc.call("PutRevoke", other, "no file", DISK, ""), { ok: false, code: -601 });
  assert.equal((await rpc.call("PutRevoke", clientID, "no file", DISK, "")).ok, true);
  assert.deepEqual(await placesOf(rpc, "no file"), ["memory"]);
  assert.deepEqual(await end(rpc, "no file", DISK), { ok: false, code: -700 });

  write(await started(rpc, "no memory"));
  assert.equal((await rpc.call("PutRevoke", clientID, "no memory", MEMORY, "")).ok, true);
  assert.deepEqual(await rpc.call("GetReplicaList", "no memory", ""), notReady, "what was never finished is not found");
  assert.equal((await end(rpc, "no memory", DISK)).ok, true);
  assert.deepEqual(await placesOf(rpc, "no memory"), ["disk"]);

  await started(rpc, "neither");
  assert.equal((await rpc.call("PutRevoke", clientID, "neither", ALL, "")).ok, true);
  assert.deepEqual(await end(rpc, "neither", DISK), gone);
  assert.deepEqual(await rpc.call("GetReplicaList", "neither", ""), gone);
  rpc.close();
});

void test("a file that its writer removed is evicted by a call for that kind alone, with KV events of the medium disk", async () => {
  await using folder = makeFolder();
  const home = makeHome();
  const { live } = endpointsIn(home);
  const events = ["--enable_kv_events=true", `--kv_events_bind_endpoint=${live}`, "--kv_events_backend_id=pool"];
  await using master = await startMaster({ home, flags: folderFlags(folder.path, "--client_ttl=600s", "--store.suspect_after_ms=600000", ...events) });
  using listener = subscribe(live);
  const rpc = await holding(master);
  await until("the subscription is there", async () => {
    assert.equal((await rpc.call("PutStart", clientID, "warm", 10n, plain, "")).ok, true);
    assert.equal((await rpc.call("PutEnd", clientID, { key: "warm", checksum: undefined }, DISK, "")).ok, true);
    assert.equal((await rpc.call("PutEnd", clientID, { key: "warm", checksum: undefined }, MEMORY, "")).ok, true);
    await rpc.call("Remove", "warm", true, "");
    return listener.events().length > 0 ? true : undefined;
  });
  write(await started(rpc, "42"));
  assert.equal((await end(rpc, "42", MEMORY)).ok, true);
  assert.equal((await end(rpc, "42", DISK)).ok, true);
  assert.deepEqual(await rpc.call("EvictDiskReplica", clientID, "42", "", 2), { ok: false, code: -704 });
  assert.deepEqual(await rpc.call("BatchEvictDiskReplica", clientID, ["42", "none"], "", DISK), [{ ok: true, value: undefined }, gone]);
  assert.deepEqual(await rpc.call("EvictDiskReplica", clientID, "42", "", DISK), { ok: false, code: -710 });
  assert.deepEqual(await placesOf(rpc, "42"), ["memory"]);
  const media = await until("the events are there", async () => {
    const all = listener
      .events()
      .filter(({ object_key: key }) => key === "42")
      .map((event) => `${event["event_type"]} ${event["medium"]}`);
    return all.length >= 3 ? all : undefined;
  });
  assert.deepEqual(media, ["stored cpu", "stored disk", "removed disk"]);
  await untilFiles(folder.path, 0);
  rpc.close();
  await master.kill();
  removeHome(home);
});

void test("a file whose writer is lost is never found, and a file that it creates late is removed", async () => {
  await using folder = makeFolder();
  const flags = folderFlags(folder.path, "--client_ttl=600s", "--store.suspect_after_ms=600000", "--put_start_discard_timeout_sec=1");
  await using master = await startMaster({ flags });
  const rpc = await holding(master);
  const half = await started(rpc, "half");
  write(`${half}.part`);
  assert.equal((await end(rpc, "half", MEMORY)).ok, true);
  const both = await started(rpc, "both");
  write(both);
  // After its restart the master finds both unfinished.
  await master.kill();
  await master.start();
  const again = await master.rpc();
  assert.equal((await again.call("ReMountSegment", [segmentOf(1, 1n << 20n)], clientID)).ok, true);
  assert.deepEqual(await placesOf(again, "half"), ["memory"]);
  assert.deepEqual(await again.call("GetReplicaList", "both", ""), notReady);
  await until("the unfinished put is given up", async () => ((await placesOf(again, "both")) === -704 ? true : undefined));
  await untilFiles(folder.path, 0);
  assert.deepEqual(await end(again, "half", DISK), { ok: false, code: -700 });
  assert.deepEqual(await placesOf(again, "half"), ["memory"]);
  assert.equal((await again.call("Remove", "half", true, "")).ok, true, "nothing holds it back any more");
  rpc.close();
  again.close();
});

void test("an upsert by the same writer gets no file while that of the previous one is being written, so that a late end counts for no other", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: folderFlags(folder.path, "--client_ttl=600s", "--store.suspect_after_ms=600000") });
  const rpc = await holding(master);
  await started(rpc, "k");
  assert.equal((await end(rpc, "k", MEMORY)).ok, true);
  const second = await rpc.call("UpsertStart", clientID, "k", 100n, plain, "");
  assert.ok(second.ok);
  assert.deepEqual(
    second.value.map(({ place }) => place.type),
    ["memory"],
  );
  // The end of the first upsert arrives late.
  assert.deepEqual(await end(rpc, "k", DISK), { ok: false, code: -700 });
  assert.equal((await rpc.call("UpsertEnd", clientID, { key: "k", checksum: undefined }, MEMORY, "")).ok, true);
  assert.deepEqual(await placesOf(rpc, "k"), ["memory"]);
  write(await started(rpc, "k", "UpsertStart"));
  rpc.close();
});

void test("a client that never ends its files gets no more of them after a while, and its puts work as without a folder", async () => {
  await using folder = makeFolder();
  const flags = folderFlags(folder.path, "--client_ttl=600s", "--store.suspect_after_ms=600000", "--put_start_discard_timeout_sec=1");
  await using master = await startMaster({ flags });
  const rpc = await holding(master);
  for (let at = 0; at < 20; at++) {
    await started(rpc, `k-${at}`);
    assert.equal((await end(rpc, `k-${at}`, ALL)).ok, true);
  }
  await until("they are given up", async () => ((await metric(master, "svc_store_folder_files")) === 0 ? true : undefined));
  const next = await rpc.call("PutStart", clientID, "next", 100n, plain, "");
  assert.deepEqual(next.ok && next.value.map(({ place }) => place.type), ["memory"]);
  assert.equal((await end(rpc, "next", ALL)).ok, true);
  assert.equal((await rpc.call("Remove", "next", true, "")).ok, true);
  rpc.close();
});

void test("a file is assigned for exactly the bytes that were stored, the same one again after a lost answer, and ended by its number", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: folderFlags(folder.path, "--client_ttl=600s", "--store.suspect_after_ms=600000") });
  const rpc = await holding(master);
  assert.ok((await rpc.call("PutStart", clientID, "k", 100n, plain, "")).ok);
  assert.equal((await rpc.call("PutEnd", clientID, { key: "k", checksum: 7n }, ALL, "")).ok, true);
  assert.equal((await rpc.call("PutRevoke", clientID, "k", DISK, "")).ok, true);
  const ask = async (sizeBytes: bigint, checksum: bigint, by = clientID) => (await rpc.call("StartFiles", by, [{ key: "k", sizeBytes, checksum }], ""))[0];
  assert.deepEqual(await ask(100n, 8n), { ok: false, code: -705 });
  assert.deepEqual(await ask(99n, 7n), { ok: false, code: -705 });
  assert.deepEqual(await ask(100n, 7n, other), { ok: false, code: -601 });
  const given = await ask(100n, 7n);
  assert.ok(given?.ok);
  assert.deepEqual(await ask(100n, 7n), given);
  const { path, file } = given.value;
  const ended = async (isWhole: boolean, number: bigint) => (await rpc.call("EndFiles", clientID, [{ key: "k", file: number, isWhole }], ""))[0];
  assert.deepEqual(await ended(true, file + 1n), { ok: false, code: -710 });
  assert.deepEqual(await placesOf(rpc, "k"), ["memory"]);
  write(path);
  assert.equal((await ended(true, file))?.ok, true);
  assert.equal((await ended(true, file))?.ok, true);
  assert.deepEqual(await placesOf(rpc, "k"), ["memory", "disk"]);
  assert.deepEqual(await ask(100n, 7n), { ok: false, code: -711 });
  rpc.close();
});

void test("clients of ours that upsert one key at the same time never mix their bytes, in memory or in files", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: folderFlags(folder.path) });
  const holder = await openClient(master, { segmentBytes: 64 * MIB });
  await using one = await openClient(master);
  await using two = await openClient(master);
  const value = (client: number, round: number) => Buffer.alloc(200_000, `${client}-${round} `);
  for (let round = 0; round < 40; round++) {
    const values = [value(1, round), value(2, round), value(1, round + 100)];
    const [first, second, third] = values as [Buffer, Buffer, Buffer];
    await Promise.all([one.upsert("k", first), two.upsert("k", second), one.upsert("k", third)].map((each) => each.catch(() => undefined)));
    const { disk_values: files = [] } = await entryOf(master, "k");
    assert.ok(files.length <= 1);
    const stored = await two.get("k");
    for (const { file_path: path } of files) assert.ok(stored !== undefined && readFileSync(path).equals(stored), `round ${round}`);
    assert.ok(values.some((each) => stored?.equals(each)));
  }
  await one.upsert("k", value(1, 500));
  await until("one file is left", async () => (filesBelow(folder.path).length === 1 ? true : undefined));
  await holder.close();
  assert.ok((await two.get("k"))?.equals(value(1, 500)));
});
