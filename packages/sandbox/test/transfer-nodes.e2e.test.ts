// Snapshots that a node fetches from another one, without object storage: complete, verified and once, or not at all.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer, type Server } from "node:net";
import { join } from "node:path";
import { describe, test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { serve } from "@svc/kit/serve.ts";
import type { Neighbours } from "../src/snapshot-transfer/neighbour.ts";
import { MIB, openTransferHome, TRANSFER_API_KEY, type TransferHome, type TransferHomeOptions } from "./transfer-fixture.ts";

const CHUNK = 4 * MIB;

type Serving = AsyncDisposable & { readonly url: string; readonly asked: string[] };

/** Serves a home to other nodes, and records the requests. */
async function serving({ transfer }: TransferHome, apiKey = TRANSFER_API_KEY): Promise<Serving> {
  const asked: string[] = [];
  const log = openLog("test", "fatal");
  const app = serve({ operations: {}, handlers: {}, apiKey, log, metrics: openMetrics(), raw: (scope) => transfer.routes(scope) });
  app.addHook("onRequest", async ({ url }) => void asked.push(url));
  await app.listen({ host: "127.0.0.1", port: 0 });
  return { url: `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`, asked, [Symbol.asyncDispose]: () => app.close() };
}

const neighbours = (live: Readonly<Record<string, string>>, away: readonly string[] = []): Neighbours => ({
  read: Promise.resolve(),
  live: Object.entries(live).map(([nodeID, url]) => ({ nodeID, url })),
  away,
});
const nextTo = (live: Readonly<Record<string, string>>, options: TransferHomeOptions = {}) =>
  openTransferHome({ nodeID: "node-b", neighbours: neighbours(live), ...options });
const filesOf = async ({ records, checkpoints }: TransferHome, id: string) =>
  (await checkpoints.find(records.snapshots.find(id)?.checkpointID ?? assert.fail(`${id} is not here`))).directory;

/** Checks that there is no record, checkpoint or half-made file. */
function nothingOf(home: TransferHome): void {
  assert.equal(home.records.snapshots.size, 0);
  assert.deepEqual(readdirSync(join(home.home, "snapshots")), []);
  assert.deepEqual(
    readdirSync(join(home.home, "snapshot-transfer")).filter((name) => /^(in|pack)-/.test(name)),
    [],
  );
}

void describe("a snapshot of another node, without object storage", needs("root", "xxh128sum"), () => {
  void test("is fetched by id or name, once for all concurrent requests; a second start transfers no byte", async () => {
    await using source = await openTransferHome({ nodeID: "node-a" });
    await using at = await serving(source);
    await using target = await nextTo({ "node-a": at.url });
    const pages = Buffer.concat([randomBytes(CHUNK), Buffer.alloc(CHUNK), randomBytes(77)]);
    const id = await source.keep({ "pages.img": pages }, { name: "ready", kind: "memory" });
    assert.equal(await target.transfer.fetch("nothing-of-that-name"), undefined);
    assert.deepEqual(await Promise.all(["ready", id, "ready:default"].map((asked) => target.transfer.fetch(asked))), [id, id, id]);
    assert.ok(readFileSync(join(await filesOf(target, id), "pages.img")).equals(pages));
    const moved = await target.moved("peer");
    assert.ok(moved >= CHUNK + 77 && moved < CHUNK + 100_000, `${moved} bytes`);
    const chunksAsked = at.asked.filter((url) => /[0-9a-f]{64}/.test(url)).length;
    assert.deepEqual([await target.transfer.fetch("ready"), await target.transfer.fetch(id)], [id, id]);
    assert.deepEqual([await target.moved("peer"), at.asked.filter((url) => /[0-9a-f]{64}/.test(url)).length], [moved, chunksAsked]);
  });

  void test("has no name on the node that fetched it: its origin node resolves the name", async () => {
    await using source = await openTransferHome({ nodeID: "node-a" });
    await using at = await serving(source);
    await using target = await nextTo({ "node-a": at.url });
    const first = await source.keep({ "a.img": randomBytes(10) }, { name: "ready" });
    assert.equal(await target.transfer.fetch("ready"), first);
    const second = await source.keep({ "a.img": randomBytes(10) }, { name: "ready" });
    assert.equal(await target.transfer.fetch("ready"), second);
    assert.deepEqual(
      target.records.snapshots.list({}).map(({ names, originNodeID }) => [names, originNodeID]),
      [
        [[], "node-a"],
        [[], "node-a"],
      ],
    );
    assert.equal(target.records.snapshots.find("ready"), undefined);
  });

  void test("transfers only the chunks that no local snapshot has", async () => {
    await using source = await openTransferHome({ nodeID: "node-a" });
    await using at = await serving(source);
    await using target = await nextTo({ "node-a": at.url });
    const common = randomBytes(3 * CHUNK);
    await target.transfer.fetch(await source.keep({ "pages.img": common }));
    const before = await target.moved("peer");
    const next = Buffer.concat([common.subarray(0, CHUNK), randomBytes(CHUNK), common.subarray(2 * CHUNK), randomBytes(10)]);
    const id = await source.keep({ "pages.img": next });
    assert.equal(await target.transfer.fetch(id), id);
    assert.ok(readFileSync(join(await filesOf(target, id), "pages.img")).equals(next));
    assert.deepEqual([(await target.moved("peer")) - before, await target.moved("kept")], [CHUNK + 10, 2 * CHUNK]);
    // A local chunk is verified: one that was damaged here is fetched again.
    const [older = ""] = target.records.snapshots.list({}).flatMap(({ snapshotID }) => (snapshotID === id ? [] : [snapshotID]));
    for (const each of [older, id]) writeFileSync(join(await filesOf(target, each), "pages.img"), Buffer.alloc(3 * CHUNK + 10, 1));
    const third = await source.keep({ "pages.img": Buffer.concat([next, randomBytes(5)]) });
    await target.transfer.fetch(third);
    assert.ok(
      readFileSync(join(await filesOf(target, third), "pages.img"))
        .subarray(0, next.length)
        .equals(next),
    );
  });

  void test("includes its base template if that is missing here", async () => {
    await using source = await openTransferHome({ nodeID: "node-a" });
    await using at = await serving(source);
    await using target = await nextTo({ "node-a": at.url }, { base: "another" });
    const id = await source.keep({ "a.img": Buffer.from("a") });
    assert.equal(await target.transfer.fetch(id), id);
    const { image } = target.records.snapshots.find(id) ?? assert.fail();
    await target.images.ready(image);
    assert.equal(readFileSync(join(image.rootfs, "etc/issue"), "utf8"), "base");
  });

  void test("is refused with its node's name if it is damaged there, or fetched from another node that has it; nothing partial is left", async () => {
    await using source = await openTransferHome({ nodeID: "node-a" });
    await using at = await serving(source);
    await using copy = await nextTo({ "node-a": at.url }, { nodeID: "node-c" });
    await using atCopy = await serving(copy);
    const pages = randomBytes(2 * CHUNK);
    const id = await source.keep({ "pages.img": pages });
    await copy.transfer.fetch(id);
    await using target = await nextTo({ "node-a": at.url });
    // The file is damaged after it was described, so the manifest is right and the file is wrong.
    writeFileSync(join(await filesOf(source, id), "pages.img"), Buffer.alloc(2 * CHUNK, 1));
    await assert.rejects(target.transfer.fetch(id), {
      name: "SNAPSHOT_DAMAGED",
      message: new RegExp(`'${id}' could not be fetched from node node-a: .*changed while it was read`),
    });
    nothingOf(target);
    await using third = await nextTo({ "node-a": at.url, "node-c": atCopy.url }, { nodeID: "node-d" });
    assert.equal(await third.transfer.fetch(id), id);
    assert.ok(readFileSync(join(await filesOf(third, id), "pages.img")).equals(pages));
    assert.equal(third.records.snapshots.find(id)?.originNodeID, "node-a");
  });

  void test("leaves nothing if its node is lost during the transfer, ends if no node answers, and names the nodes that may have it", async () => {
    await using source = await openTransferHome({ nodeID: "node-a" });
    await using at = await serving(source);
    const id = await source.keep({ "pages.img": randomBytes(3 * CHUNK) });
    const cut = await cutting(at.url, 3);
    await using target = await nextTo({ "node-a": cut.url });
    await assert.rejects(target.transfer.fetch(id), { name: "SERVER_UNREACHABLE", message: /from node node-a: node node-a cannot be read/ });
    assert.ok(at.asked.some((url) => /[0-9a-f]{64}/.test(url)));
    nothingOf(target);
    cut.server.close();

    await using silent = await silentServer();
    await using waiting = await nextTo({ "node-a": silent.url }, { neighbours: neighbours({ "node-a": silent.url }, ["node-z"]) });
    await assert.rejects(waiting.transfer.fetch(id), { name: "TEMPLATE_NOT_FOUND", message: /on no node that answers; node-z, node-a may have it/ });
  });

  void test("is not served without the API key, and not accepted from a node with other secrets", async () => {
    await using source = await openTransferHome({ nodeID: "node-a", secret: "another deployment" });
    await using at = await serving(source);
    const id = await source.keep({ "pages.img": randomBytes(100) });
    await using target = await nextTo({ "node-a": at.url });
    await assert.rejects(target.transfer.fetch(id), { name: "SNAPSHOT_UNSUITABLE", message: /what node node-a sent was written by a node with other secrets/ });
    nothingOf(target);
    for (const path of [`?asked=${id}`, `/${id}`, `/${id}/${"0".repeat(64)}`]) {
      const refused = await fetch(`${at.url}/cluster/offers${path}`, { headers: { "x-api-key": "x".repeat(40) } });
      assert.equal(refused.status, 401);
      const odd = await fetch(`${at.url}/cluster/offers/..%2f..%2fetc/${"0".repeat(64)}`, { headers: { "x-api-key": TRANSFER_API_KEY } });
      assert.equal(odd.status, 400);
    }
  });

  void test("is dropped once its origin node reports that it was deleted, and stays while that node does not answer, or has lost its records", async () => {
    await using source = await openTransferHome({ nodeID: "node-a" });
    const ids = [await source.keep({ "a.img": randomBytes(10) }), await source.keep({ "a.img": randomBytes(10) })];
    const live: { nodeID: string; url: string }[] = [];
    await using target = await nextTo({}, { neighbours: { read: Promise.resolve(), live, away: [] } });
    {
      await using at = await serving(source);
      live.push({ nodeID: "node-a", url: at.url });
      for (const id of ids) await target.transfer.fetch(id);
      source.records.snapshots.remove(ids[0] ?? "");
    }
    await target.transfer.dropOver();
    assert.equal(target.records.snapshots.size, 2);
    await using again = await serving(source);
    live.splice(0, 1, { nodeID: "node-a", url: again.url });
    await using third = await nextTo({}, { neighbours: { read: Promise.resolve(), live, away: [] }, nodeID: "node-c" });
    await using atTarget = await serving(target);
    live.push({ nodeID: "node-b", url: atTarget.url });
    assert.equal(await third.transfer.fetch(ids[0] ?? ""), undefined, "a copy of a deleted snapshot is not served");
    await target.transfer.dropOver();
    assert.deepEqual(
      target.records.snapshots.list({}).map(({ snapshotID }) => snapshotID),
      [ids[1]],
    );
    // This imitates a home restored from a backup: it has no record of the snapshot, and the copy is the only one left.
    await using empty = await openTransferHome({ nodeID: "node-a" });
    await using atEmpty = await serving(empty);
    live.splice(0, 1, { nodeID: "node-a", url: atEmpty.url });
    await target.transfer.dropOver();
    assert.equal(target.records.snapshots.size, 1);
    assert.equal(await third.transfer.fetch(ids[1] ?? ""), ids[1]);
    await until("its checkpoint is gone", () => (readdirSync(join(target.home, "snapshots")).length === 1 ? true : undefined));
  });
});

/** Forwards connections, and cuts each one after a total number of requests for chunks. */
async function cutting(url: string, chunks: number): Promise<{ readonly url: string; readonly server: Server }> {
  const { connect } = await import("node:net");
  const target = new URL(url);
  let left = chunks;
  const server = createServer((client) => {
    const upstream = connect(Number(target.port), target.hostname);
    const end = () => {
      client.destroy();
      upstream.destroy();
    };
    client.on("data", (bytes) => {
      if (/GET \/cluster\/offers\/[^/ ]+\/[0-9a-f]{64}/.test(bytes.toString("latin1")) && --left < 0) return end();
      upstream.write(bytes);
    });
    upstream.on("data", (bytes) => client.write(bytes));
    for (const each of [client, upstream]) each.on("error", end).on("close", end);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server };
}

/** Accepts connections and sends nothing. */
async function silentServer(): Promise<AsyncDisposable & { readonly url: string }> {
  const sockets = new Set<{ destroy(): void }>();
  const server = createServer((socket) => void sockets.add(socket.on("error", () => {})));
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((done) => server.close(done));
    },
  };
}
