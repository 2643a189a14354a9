// Snapshots and paused sandboxes in object storage: one copy of each chunk, complete or absent, and no referenced chunk is collected.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import type { Objects } from "@svc/kit/objects/objects.ts";
import type { PausedRecord } from "../src/records/registry.ts";
import { openChunkStore } from "../src/snapshot-transfer/chunk-store.ts";
import { openChunkThread } from "../src/snapshot-transfer/chunk-thread.ts";
import { collectChunks } from "../src/snapshot-transfer/collect-chunks.ts";
import { readChunk, type Source } from "../src/snapshot-transfer/describe.ts";
import { writeManifest } from "../src/snapshot-transfer/manifest.ts";
import { openPace } from "../src/snapshot-transfer/pace.ts";
import { describeFile } from "../src/snapshot-transfer/packs.ts";
import { claimWith, recordWith } from "./record-fixture.ts";
import { MIB, objectsIn, openTransferHome, type TransferHome } from "./transfer-fixture.ts";

const CHUNK = 4 * MIB;
const SANDBOX = "i0123456789abcdefghi";

function storage(): Disposable & { readonly folder: string; readonly url: string; keys(prefix: string): string[] } {
  const folder = mkdtempSync(join(tmpdir(), "svc-storage-"));
  const keys = (prefix: string) =>
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
      .filter((key) => key.startsWith(prefix))
      .sort();
  return { folder, url: `file://${folder}`, keys, [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }) };
}

/** Makes a paused sandbox of these files. */
async function pausedIn(home: TransferHome, files: Readonly<Record<string, Buffer>>, sandboxID = SANDBOX): Promise<PausedRecord> {
  const { checkpointID, kind, runtime, image, limits, envd } = home.records.snapshots.find(await home.keep(files)) ?? assert.fail();
  for (const { snapshotID } of home.records.snapshots.list({})) home.records.snapshots.remove(snapshotID);
  const claim = claimWith({ metadata: { owner: "agent" }, secure: true });
  const record = { ...recordWith({ state: "paused", claim, kept: { checkpointID, kind, runtime }, pausedAtWallMs: 7 }, sandboxID), image, limits, envd };
  home.registry.add(record);
  return record as PausedRecord;
}
const stored = ({ transfer }: TransferHome) => transfer.stored ?? assert.fail("no object storage");

void describe("object storage", needs("root", "xxh128sum"), () => {
  void test("stores a snapshot from which another node of the deployment starts, by id and by name", async () => {
    using place = storage();
    await using source = await openTransferHome({ objects: place.url });
    await using target = await openTransferHome({ objects: place.url, nodeID: "node-two" });
    const pages = Buffer.concat([randomBytes(CHUNK), Buffer.alloc(CHUNK), randomBytes(77)]);
    const id = await source.keep({ "pages.img": pages }, { name: "ready", kind: "memory" });
    const sent = await stored(source).exportSnapshot(id);
    assert.ok(sent.sentBytes > CHUNK + 77);
    assert.equal(await target.transfer.fetch("nothing-of-that-name"), undefined);
    assert.deepEqual(await Promise.all([target.transfer.fetch("ready"), target.transfer.fetch("ready:default")]), [id, id]);
    const snapshot = target.records.snapshots.find(id) ?? assert.fail();
    // The name stays with the origin node, where it may be assigned to another snapshot.
    assert.deepEqual([snapshot.names, snapshot.originNodeID, target.records.snapshots.size], [[], "node-one", 1]);
    assert.ok(readFileSync(join((await target.checkpoints.find(snapshot.checkpointID)).directory, "pages.img")).equals(pages));
  });

  void test("stores a base template once, whichever node sent it, for nodes with a different one", async () => {
    using place = storage();
    await using source = await openTransferHome({ objects: place.url });
    await using twin = await openTransferHome({ objects: place.url });
    await using target = await openTransferHome({ objects: place.url, base: "another" });
    // This imitates set-up on another machine: the same files, made at another time.
    utimesSync(join(twin.base.rootfs, "etc/issue"), 1, 1);
    const id = await source.keep({ "a.img": Buffer.from("a") });
    await stored(source).exportSnapshot(id);
    await stored(twin).exportSnapshot(await twin.keep({ "b.img": Buffer.from("b") }));
    assert.equal(place.keys("manifests/bases/").length, 1);
    assert.equal(await target.transfer.fetch(id), id);
    const { image } = target.records.snapshots.find(id) ?? assert.fail();
    await target.images.ready(image);
    assert.equal(readFileSync(join(image.rootfs, "etc/issue"), "utf8"), "base");
  });

  void test("stores each chunk once, and a second export sends only changed chunks", async () => {
    using place = storage();
    await using source = await openTransferHome({ objects: place.url });
    const common = randomBytes(3 * CHUNK);
    await stored(source).exportSnapshot(await source.keep({ "pages.img": common }));
    const chunks = place.keys("chunks/").length;
    const second = await stored(source).exportSnapshot(await source.keep({ "pages.img": Buffer.concat([common, randomBytes(10)]) }));
    assert.deepEqual([second.sentBytes, second.sentChunks, place.keys("chunks/").length], [10, 1, chunks + 1]);
    assert.deepEqual(place.keys("intents/"), []);
  });

  void test("verifies each chunk as it is read: damage and loss are reported, and nothing is left", async () => {
    using place = storage();
    await using source = await openTransferHome({ objects: place.url });
    await using target = await openTransferHome({ objects: place.url });
    const id = await source.keep({ "pages.img": randomBytes(CHUNK) });
    await stored(source).exportSnapshot(id);
    const key = place.keys("chunks/").find((each) => readFileSync(join(place.folder, each)).length === CHUNK);
    for (const [harm, message] of [
      [(path: string) => writeFileSync(path, randomBytes(readFileSync(path).length)), /is not what was written/],
      [(path: string) => writeFileSync(path, "short"), /has 5 bytes; its manifest says/],
      [(path: string) => rmSync(path), /is not in file:/],
    ] as const) {
      harm(join(place.folder, key ?? ""));
      await assert.rejects(target.transfer.fetch(id), { name: "SNAPSHOT_DAMAGED", message });
      assert.equal(readdirSync(join(target.home, "snapshots")).length, 0);
    }
  });

  void test("does not provide a manifest written by a node with other secrets", async () => {
    using place = storage();
    await using stranger = await openTransferHome({ objects: place.url, secret: "another" });
    await using target = await openTransferHome({ objects: place.url });
    const id = await stranger.keep({ "a.img": Buffer.from("a") });
    await stored(stranger).exportSnapshot(id);
    await assert.rejects(target.transfer.fetch(id), { name: "SNAPSHOT_UNSUITABLE", message: /a node with other secrets/ });
  });

  void test("moves a paused sandbox to another home, with its claim, and the first forgets it", async () => {
    using place = storage();
    await using source = await openTransferHome({ objects: place.url });
    await using target = await openTransferHome({ objects: place.url });
    const record = await pausedIn(source, { "pages.img": randomBytes(1000) });
    const { manifest } = await stored(source).exportSandbox(SANDBOX);
    assert.equal(manifest, `sandboxes/${SANDBOX}/${record.status.kept.checkpointID}`);
    await source.transfer.releaseSandbox(SANDBOX, "node-other");
    assert.equal(source.registry.get(SANDBOX), undefined);
    const take = (from: string) => target.transfer.importSandbox(from, async () => {});
    const moved = await take(manifest);
    assert.deepEqual([moved.sandboxID, moved.guestBootID, moved.limits, moved.status.state], [SANDBOX, record.guestBootID, record.limits, "paused"]);
    // The export belongs to the other home now: neither home removes it or sends it again.
    const before = place.keys("");
    await Promise.all([source.transfer.start(), target.transfer.start()]);
    await until("both to have checked", () => (source.transfer.exports?.waiting === 0 && target.transfer.exports?.waiting === 0) || undefined);
    assert.deepEqual(place.keys(""), before);
    const { claim } = (target.registry.owned(SANDBOX) as PausedRecord).status;
    assert.deepEqual([claim.metadata, claim.egress, claim.secure], [record.status.claim.metadata, record.status.claim.egress, true]);
    await assert.rejects(take(manifest), { name: "SANDBOX_RUNNING" });
    for (const wrong of ["../x", "sandboxes/../snapshots/x", `sandboxes/${SANDBOX}/c0`]) await assert.rejects(take(wrong), { name: "INVALID_REQUEST" });
  });

  void test("loses the export of a sandbox that was resumed or ended, even over a restart in between", async () => {
    using place = storage();
    await using first = await openTransferHome({ objects: place.url });
    await pausedIn(first, { "pages.img": randomBytes(1000) });
    const exports = first.transfer.exports ?? assert.fail();
    exports.soon(SANDBOX);
    await until("it to be exported", () => (place.keys("manifests/sandboxes/").length === 1 && exports.waiting === 0) || undefined);
    // This imitates a kill: the record is resumed, and its export is not removed yet.
    first.registry.release(SANDBOX, "node-other");
    await exports.start();
    await until("its export to be removed", () => place.keys("manifests/sandboxes/").length === 0 || undefined);
    const { deletedChunks } = (await first.transfer.collect()) ?? assert.fail();
    assert.ok(deletedChunks > 0);
  });

  void test("keeps the export of a sandbox whose record is quarantined", async () => {
    using place = storage();
    const quarantine = new Set<string>();
    await using home = await openTransferHome({ objects: place.url, quarantine });
    await pausedIn(home, { "pages.img": randomBytes(1000) });
    const exports = home.transfer.exports ?? assert.fail();
    await exports.now(SANDBOX);
    home.registry.release(SANDBOX, "node-other");
    quarantine.add(SANDBOX);
    await exports.start();
    await until("it to have checked", () => exports.waiting === 0 || undefined);
    assert.equal(place.keys("manifests/sandboxes/").length, 1);
  });

  void test("receives at the start the sandboxes paused and snapshots kept before it was configured", async () => {
    using place = storage();
    await using home = await openTransferHome({ objects: place.url });
    await pausedIn(home, { "pages.img": randomBytes(1000) });
    await home.keep({ "pages.img": randomBytes(1000) });
    await home.transfer.start();
    await until("both to be exported", () => (place.keys("manifests/sandboxes/").length === 1 && place.keys("manifests/snapshots/").length === 1) || undefined);
  });

  void test("loses with a deleted snapshot the chunks that no other refers to, and keeps those shared with an existing one", async () => {
    using place = storage();
    await using home = await openTransferHome({ objects: place.url });
    await using other = await openTransferHome({ objects: place.url });
    const common = randomBytes(2 * CHUNK);
    const gone = await home.keep({ "pages.img": Buffer.concat([common, randomBytes(CHUNK)]) }, { name: "gone" });
    const living = await home.keep({ "pages.img": common });
    await stored(home).exportSnapshot(gone);
    await stored(home).exportSnapshot(living);
    await stored(home).dropSnapshot(gone);
    assert.deepEqual(place.keys("names/"), []);
    const collected = (await home.transfer.collect()) ?? assert.fail();
    // The manifests are those of the existing snapshot and of the base that both use.
    assert.deepEqual([collected.deletedChunks, collected.deletedBytes, collected.manifests], [1, CHUNK, 2]);
    assert.equal(await other.transfer.fetch(living), living);
    assert.equal(await other.transfer.fetch(gone), undefined);
    assert.deepEqual(place.keys("collecting/"), []);
  });

  void test("keeps every chunk if a manifest cannot be read", async () => {
    using place = storage();
    await using home = await openTransferHome({ objects: place.url });
    await stored(home).exportSnapshot(await home.keep({ "a.img": randomBytes(10) }));
    writeFileSync(join(place.folder, place.keys("manifests/")[0] ?? ""), "torn");
    const before = place.keys("chunks/");
    await assert.rejects(home.transfer.collect() as Promise<unknown>, { name: "SNAPSHOT_DAMAGED", message: /nothing is collected/ });
    assert.deepEqual(place.keys("chunks/"), before);
  });
});

/** Object storage that blocks before chosen calls, until the test continues it. */
function halting(objects: Objects, at: (verb: string, key: string) => boolean): { readonly objects: Objects; readonly reached: Promise<void>; go(): void } {
  const reached = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  const halt = async (verb: string, key: string) => {
    if (!at(verb, key)) return;
    reached.resolve();
    await gate.promise;
  };
  const over =
    <A extends readonly unknown[], T>(verb: string, call: (key: string, ...rest: A) => Promise<T>) =>
    async (key: string, ...rest: A) => {
      await halt(verb, key);
      return call(key, ...rest);
    };
  const wrapped = {
    ...objects,
    put: over("put", objects.put),
    get: over("get", objects.get),
    head: over("head", objects.head),
    delete: over("delete", objects.delete),
  };
  return { objects: wrapped, reached: reached.promise, go: () => gate.resolve() };
}

void test("a collection concurrent with an export, at any step, loses no chunk of the export's manifest", async () => {
  const thread = openChunkThread();
  // Steps at which the export blocks during a whole collection; below, steps at which the collection blocks while an export begins.
  const steps: [string, string][] = [
    ["put", "intents/"],
    ["head", "chunks/"],
    ["put", "chunks/"],
    ["put", "manifests/"],
    ["delete", "intents/"],
  ];
  const collectorSteps: [string, string][] = [
    ["put", "collecting/"],
    ["get", "manifests/"],
    ["delete", "chunks/"],
    ["delete", "collecting/"],
  ];
  for (const [who, verb, prefix] of [...steps.map((each) => ["export", ...each] as const), ...collectorSteps.map((each) => ["collection", ...each] as const)]) {
    using place = storage();
    const plain = await objectsIn(place.folder);
    const path = join(place.folder, "file");
    writeFileSync(path, randomBytes(2 * CHUNK + 5));
    const file = await describeFile(thread, "file", path);
    const sources: Source[] = [{ file, path: async () => path }];
    const manifest = writeManifest({ files: [file] } as never, "key");
    const openStore = (objects: Objects) => openChunkStore({ objects, concurrency: 2, bytesPerSecond: 0, count: () => {} });
    const send = (objects: Objects) => openStore(objects).send("snapshots/x", manifest, sources, (chunk) => readChunk(thread, chunk));
    const collect = (objects: Objects) => collectChunks(objects, { nodeID: "n", graceMs: 0 });
    // An earlier export left the chunks, and no manifest refers to them.
    await openStore(plain).send("snapshots/old", manifest, sources, (chunk) => readChunk(thread, chunk));
    await plain.put("manifests/snapshots/another", writeManifest({ files: [] } as never, "key"));
    await plain.delete("manifests/snapshots/old");
    let passed = 0;
    const halted = halting(plain, (each, key) => each === verb && key.startsWith(prefix) && passed++ === 0);
    const slow = who === "export" ? send(halted.objects) : collect(halted.objects);
    const isReached = await Promise.race([halted.reached.then(() => true), slow.then(() => false)]);
    const quick = who === "export" ? collect(plain) : send(plain);
    // An export that finds a collection waits for its end.
    await Promise.race([quick, new Promise((later) => setTimeout(later, 300))]);
    halted.go();
    await Promise.all([slow, quick]);
    for (const chunk of file.chunks)
      assert.notEqual(await plain.head(`chunks/${String(chunk).slice(0, 2)}/${chunk}`), undefined, `${who} ${verb} ${prefix} ${isReached}`);
    await collect(plain);
    for (const chunk of file.chunks) assert.notEqual(await plain.head(`chunks/${String(chunk).slice(0, 2)}/${chunk}`), undefined, `${who} ${verb} ${prefix}`);
  }
  await thread.close();
});

void test("chunks are transferred at most at the configured rate and concurrency", async () => {
  const pace = openPace(10 * MIB, 3);
  let running = 0;
  let most = 0;
  const begin = performance.now();
  await Promise.all(
    Array.from({ length: 6 }, () =>
      pace(MIB, async () => {
        most = Math.max(most, ++running);
        await new Promise((later) => setTimeout(later, 5));
        running--;
      }),
    ),
  );
  assert.ok(performance.now() - begin >= 490, "the sixth MiB starts after the time of five");
  assert.ok(most <= 3);
});
