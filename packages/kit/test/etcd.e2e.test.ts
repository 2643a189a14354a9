// The etcd client against a real etcd: keys, transactions, leases, and its failures when no member answers.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Failure } from "@svc/contract/failures.ts";
import { startEtcd } from "@svc/harness/etcd.ts";
import { needs } from "@svc/harness/needs.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { startRelay } from "@svc/harness/relay.ts";
import { until } from "@svc/harness/until.ts";
import { type Etcd, openEtcd } from "../src/etcd/client.ts";
import type { EtcdOptions } from "../src/etcd/endpoints.ts";
import { isAbsent } from "../src/etcd/transaction.ts";

/** These limits far exceed what a busy machine needs; tests of the limits set their own. */
const patient = { attemptMs: 10_000, callMs: 60_000 };

function client(endpoints: readonly string[], options: Partial<EtcdOptions> = patient): Etcd & AsyncDisposable {
  const etcd = openEtcd({ endpoints, ...options });
  return Object.assign(etcd, { [Symbol.asyncDispose]: () => etcd.close() });
}

void test("keys are written, read, listed at one revision and deleted, whatever characters they contain", needs("etcd"), async () => {
  await using server = await startEtcd();
  await using etcd = client(server.endpoints);
  assert.equal(await etcd.get("a/none"), undefined);
  const revision = await etcd.put("a/ä\n\0", "wörld\n");
  const found = await etcd.get("a/ä\n\0");
  assert.deepEqual([found?.value, found?.version, found?.modRevision, found?.leaseID], ["wörld\n", 1n, revision, undefined]);
  for (let page = 0; page < 3; page++) {
    const puts = Array.from({ length: 120 }, (_, index) => ({ put: `many/${page}/${String(index).padStart(3, "0")}`, value: String(index) }));
    assert.ok((await etcd.transact({ do: puts })).succeeded);
  }
  await etcd.put("manz", "outside");
  const listed = await etcd.list("many/");
  assert.equal(listed.entries.length, 360);
  assert.deepEqual(
    listed.entries.map(({ key }) => key),
    [...listed.entries.map(({ key }) => key)].sort(),
  );
  assert.deepEqual([await etcd.delete("manz"), await etcd.delete("manz")], [true, false]);
});

void test("a prefix with more keys than one page is listed completely", needs("etcd"), async () => {
  await using server = await startEtcd();
  await using etcd = client(server.endpoints);
  const size = 2_100;
  for (let from = 0; from < size; from += 100)
    await etcd.transact({ do: Array.from({ length: 100 }, (_, index) => ({ put: `p/${String(from + index).padStart(6, "0")}`, value: "x" })) });
  const { entries } = await etcd.list("p/");
  assert.equal(new Set(entries.map(({ key }) => key)).size, size);
});

void test("of many transactions that take one key if it is absent, one succeeds and the others see its owner", needs("etcd"), async () => {
  await using server = await startEtcd();
  await using etcd = client(server.endpoints);
  const takers = Array.from({ length: 20 }, (_, index) => String(index));
  const results = await Promise.all(
    takers.map((value) => etcd.transact({ if: [isAbsent("slot/1")], do: [{ put: "slot/1", value }], else: [{ get: "slot/1" }] })),
  );
  assert.equal(results.filter(({ succeeded }) => succeeded).length, 1);
  const winner = takers[results.findIndex(({ succeeded }) => succeeded)];
  for (const { succeeded, entries } of results) if (!succeeded) assert.equal(entries[0]?.[0]?.value, winner);
});

void test("a transaction compares version, revisions and value, and deletes a prefix", needs("etcd"), async () => {
  await using server = await startEtcd();
  await using etcd = client(server.endpoints);
  await etcd.put("k", "one");
  const modRevision = await etcd.put("k", "two");
  const holds = async (...conditions: Parameters<Etcd["transact"]>[0]["if"] & {}) => (await etcd.transact({ if: conditions, do: [] })).succeeded;
  assert.ok(await holds({ key: "k", value: "two" }, { key: "k", version: 2n }, { key: "k", modRevision }));
  assert.ok(await holds({ key: "k", createRevision: modRevision - 1n }, { key: "k", modRevision: modRevision - 1n, is: ">" }));
  assert.ok(!(await holds({ key: "k", value: "one" })));
  assert.ok(!(await holds({ key: "k", version: 2n, is: "!=" })));
  assert.ok(!(await holds({ key: "k", modRevision, is: "<" })));
  await etcd.put("k/1", "x");
  await etcd.put("k/2", "x");
  await etcd.transact({ do: [{ delete: "k/", isPrefix: true }] });
  assert.deepEqual(
    (await etcd.list("k")).entries.map(({ key }) => key),
    ["k"],
  );
});

void test("keys under a lease stay while it is renewed, and go when it is released", needs("etcd"), async () => {
  await using server = await startEtcd();
  await using etcd = client(server.endpoints);
  const lease = await etcd.lease(8, (reason) => assert.fail(reason));
  await etcd.put("leased", "x", lease.id);
  assert.equal((await etcd.get("leased"))?.leaseID, lease.id);
  // This exceeds the TTL: without renewals the lease would expire.
  await new Promise((resolve) => setTimeout(resolve, lease.ttlMs * 1.25));
  assert.equal((await etcd.get("leased"))?.value, "x");
  await lease.release();
  assert.equal(await etcd.get("leased"), undefined);
  assert.equal(lease.isHeld(), false);
});

void test("the owner of a lease is notified when etcd no longer knows it, and when etcd stops answering", needs("etcd"), async () => {
  await using server = await startEtcd();
  await using etcd = client(server.endpoints);
  await using bounded = client(server.endpoints, { attemptMs: 500, callMs: 4_000 });
  const revoked = Promise.withResolvers<string>();
  const lease = await bounded.lease(12, revoked.resolve);
  await fetch(`${server.endpoints[0]}/v3/lease/revoke`, { method: "POST", body: JSON.stringify({ ID: lease.id }) });
  assert.match(await revoked.promise, /does not know it any more/);
  const silent = Promise.withResolvers<string>();
  const second = await bounded.lease(5, silent.resolve);
  await etcd.put("leased", "x", second.id);
  await server.members[0]?.freeze();
  assert.match(await silent.promise, /has not renewed it for \d+ ms/);
  assert.equal(second.isHeld(), false);
  server.members[0]?.thaw();
  await until("the key goes with its lease", async () => ((await etcd.get("leased")) === undefined ? true : undefined));
});

void test("a client continues with another member when one is killed or stopped", needs("etcd"), async () => {
  await using server = await startEtcd(3);
  await using etcd = client(server.endpoints, { attemptMs: 1_000, callMs: 60_000 });
  const [first, second] = server.members;
  await etcd.put("k", "one");
  await first?.kill();
  await etcd.put("k", "two");
  await first?.start();
  await second?.freeze();
  await etcd.put("k", "three");
  assert.equal((await etcd.get("k"))?.value, "three");
  second?.thaw();
  await server.healthy();
});

void test("if no member answers, the failure names them and what to check, within its time limit", needs("etcd"), async () => {
  const [one, two] = await freePorts(2);
  await using etcd = client([`http://127.0.0.1:${one}`, `http://127.0.0.1:${two}`], { attemptMs: 200, callMs: 400 });
  await assert.rejects(etcd.get("k"), (error: Failure) => {
    assert.equal(error.name, "ETCD_UNAVAILABLE");
    assert.match(error.message, new RegExp(`${one}.*${two}.*ECONNREFUSED.*check that etcd runs`));
    return true;
  });
  await assert.rejects(etcd.transact({ do: [{ put: "k", value: "v" }] }), { name: "ETCD_UNAVAILABLE", details: { outcome: "none" } });
});

void test("a transaction whose answer was cut off reports an unknown outcome and is not sent again", needs("etcd"), async () => {
  await using server = await startEtcd();
  await using relay = await startRelay(Number(new URL(server.endpoints[0] as string).port));
  await using through = client([`http://127.0.0.1:${relay.port}`], { attemptMs: 500, callMs: 5_000 });
  await using etcd = client(server.endpoints);
  await through.put("k", "before");
  relay.stalled = true;
  await assert.rejects(through.transact({ do: [{ put: "k", value: "lost" }] }), {
    name: "ETCD_UNAVAILABLE",
    message: /it may have happened all the same/,
    details: { outcome: "unknown" },
  });
  relay.stalled = false;
  relay.cutAll();
  assert.equal((await through.get("k"))?.modRevision, (await etcd.get("k"))?.modRevision);
});

void test("an address that is not etcd's, and a request that is too large, are refused with what was expected", needs("etcd"), async () => {
  for (const wrong of ["127.0.0.1:2379", "http://127.0.0.1:2379/v3", "ftp://127.0.0.1"])
    assert.throws(() => openEtcd({ endpoints: [wrong] }), /expected http:\/\/HOST:PORT of etcd's client port/);
  await using server = await startEtcd();
  await using etcd = client(server.endpoints);
  await assert.rejects(etcd.put("k", "x".repeat(2_000_000)), { name: "ETCD_REFUSED", message: /write less at a time/ });
  const { createServer } = await import("node:http");
  const other = createServer((_, response) => response.writeHead(404).end("nothing here")).listen(0, "127.0.0.1");
  await new Promise((resolve) => other.once("listening", resolve));
  const { port } = other.address() as { port: number };
  await using astray = client([`http://127.0.0.1:${port}`]);
  await assert.rejects(astray.get("k"), { name: "ETCD_REFUSED", message: /got HTTP 404 nothing here; is this etcd's client URL\?/ });
  other.close();
});
