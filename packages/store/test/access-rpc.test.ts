// Access control on the RPC: the answer of each operation without a key, with a wrong one, with another tenant's, and with the right one.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { BodyReader } from "../src/rpc/body.ts";
import type { RpcClient } from "../src/rpc/client.ts";
import { requestHead } from "../src/rpc/frame.ts";
import { functionID, type Operation, type OperationName, operations } from "../src/rpc/operations.ts";
import { bearer, startGuarded, tokens } from "./access.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { startMaster } from "./master.ts";

const FLAGS = ["--client_ttl=600s", "--store.suspect_after_ms=600000", "--default_kv_lease_ttl=1ms"];
const names = Object.keys(operations) as OperationName[];
const MAX_BODY_BYTES = 4096;
/** The calls of a tenant's client that only reads and writes; ReMountSegment names no memory, and no client has this id. */
const OPEN = ["Authorize", "ServiceReady", "HasTenants", "GetFsdir", "GetStorageConfig", "Ping", "ReMountSegment", "Leave", "ReturnExtents", "QueryTask"];
const CONSTANT = ["PromotionAllocStart", "NotifyPromotionSuccess", "NotifyPromotionFailure", "EvictDiskReplica"];

/** Zeros, empty texts and lists: arguments of the right type. */
function zerosFor(name: OperationName): unknown[] {
  const { args } = operations[name] as unknown as Operation;
  return args === undefined ? [] : [...args.read(new BodyReader(Buffer.alloc(MAX_BODY_BYTES)))];
}
const call = (rpc: RpcClient, name: OperationName, args: readonly unknown[]) =>
  (rpc.call as (name: OperationName, ...args: readonly unknown[]) => Promise<unknown>).call(rpc, name, ...args);
const put = async (rpc: RpcClient, key: string, tenant: string) => {
  const begun = await rpc.call("PutStart", clientID, key, 10n, plain, tenant);
  return begun.ok ? rpc.call("PutEnd", clientID, { key, checksum: undefined }, 4, tenant) : begun;
};

void test("without a key, and with a wrong one, no operation of the RPC is answered", async () => {
  await using master = await startGuarded();
  const rpc = await master.rpc();
  for (const name of names.filter((each) => each !== "Authorize"))
    await assert.rejects(call(rpc, name, zerosFor(name)), { name: "UNAUTHENTICATED", message: /this master asks for a key: .*store\.access_file/ }, name);
  await assert.rejects(rpc.call("Authorize", tokens.wrong), { name: "UNAUTHENTICATED", message: /the token is not one of this master's/ });
  // The connection of a wrong token ends with the answer.
  await assert.rejects(call(rpc, "ServiceReady", []), { name: "SERVER_UNREACHABLE" });
  await assert.rejects(master.rpc(tokens.wrong), { name: "UNAUTHENTICATED" });
  await assert.rejects(master.rpc(""), { name: "UNAUTHENTICATED" });
  await until("a line in the log", () => (/RPC calls of a client that showed no key were refused/.test(master.log()) ? true : undefined));
  assert.match(master.log(), /"peer":"127\.0\.0\.1:\d+"/);
  for (const token of Object.values(tokens)) assert.ok(!master.log().includes(token));
});

void test("a tenant's key calls for its tenant alone, and neither names another tenant nor mounts memory", async () => {
  await using master = await startGuarded(FLAGS);
  const [all, blue, red] = [await master.rpc(tokens.all), await master.rpc(tokens.blue), await master.rpc(tokens.red)];
  assert.equal((await all.call("MountSegment", segmentOf(1, 1n << 20n), clientID)).ok, true);
  for (const name of names) {
    const args = zerosFor(name);
    const { tenantAt } = operations[name];
    if (OPEN.includes(name)) continue;
    if (tenantAt >= 0) args[tenantAt] = "red";
    await assert.rejects(call(blue, name, args), { name: "ACCESS_DENIED", message: /this connection's key is for one tenant's keys/ }, name);
    if (tenantAt < 0 || CONSTANT.includes(name)) continue;
    for (const own of ["", "blue"]) await assert.doesNotReject(call(blue, name, args.with(tenantAt, own)), name);
  }
  for (const name of ["ServiceReady", "HasTenants", "GetFsdir", "GetStorageConfig", "Ping", "ReMountSegment", "ReturnExtents", "QueryTask"] as const)
    await assert.doesNotReject(call(blue, name, zerosFor(name)), name);
  await assert.rejects(blue.call("ReMountSegment", [segmentOf(2, 1n << 20n)], clientID.replace("2", "3")), { name: "ACCESS_DENIED" });
  // A caller that claims to have no memory must not unmount another client's.
  await assert.rejects(blue.call("ReMountSegment", [], clientID), { name: "ACCESS_DENIED" });
  assert.equal((await put(blue, "k", "")).ok, true);
  assert.equal((await put(red, "only-red", "red")).ok, true);
  const exists = async (rpc: RpcClient, key: string, tenant: string) => rpc.call("ExistKey", key, tenant);
  assert.deepEqual(await exists(all, "k", "blue"), { ok: true, value: true });
  assert.deepEqual(await exists(blue, "k", "blue"), { ok: true, value: true });
  assert.deepEqual(await exists(red, "k", ""), { ok: true, value: false });
  assert.deepEqual(await exists(all, "k", ""), { ok: true, value: false });
  const listed = await red.call("GetReplicaListByRegex", ".*", "");
  assert.deepEqual(listed.ok && [...listed.value.keys()], ["only-red"]);
  assert.deepEqual(await blue.call("RemoveByRegex", "only-red", true, ""), { ok: true, value: 0n });
  assert.equal(await blue.call("RemoveAll", true, ""), 1n);
  assert.deepEqual(await exists(all, "only-red", "red"), { ok: true, value: true });
  for (const rpc of [all, blue, red]) rpc.close();
});

void test("a key that allows everything may make every call, also after a kill of the master", async () => {
  await using master = await startGuarded(FLAGS);
  for (let round = 0; round < 2; round++) {
    const rpc = await master.rpc(tokens.all);
    for (const name of names.filter((each) => each !== "Authorize" && each !== "FetchTasks")) await assert.doesNotReject(call(rpc, name, zerosFor(name)), name);
    rpc.close();
    await master.kill();
    await master.start();
  }
});

void test("trusted addresses call without a key, others do not, and HTTP requires one of all of them", async () => {
  await using trusting = await startGuarded(["--store.access_trusted_cidrs=10.0.0.0/8,127.0.0.0/8"]);
  const rpc = await trusting.rpc();
  assert.equal((await rpc.call("ServiceReady")).ok, true);
  assert.equal((await rpc.call("ExistKey", "k", "red")).ok, true);
  rpc.close();
  assert.equal((await fetch(`${trusting.url}/query_key?key=k`)).status, 401);
  await using other = await startGuarded(["--store.access_trusted_cidrs=10.0.0.0/8,127.0.0.2/32,::1/128"]);
  const refused = await other.rpc();
  await assert.rejects(refused.call("ServiceReady"), { name: "UNAUTHENTICATED" });
  refused.close();
});

void test("a master without keys accepts a client's key, and requires none", async () => {
  await using master = await startMaster();
  for (const token of [undefined, tokens.wrong]) {
    const rpc = await master.rpc(token);
    assert.equal((await rpc.call("ServiceReady")).ok, true);
    rpc.close();
  }
});

void test("a flood of wrong tokens and calls without a key is refused within bounds, and those with a key are answered", async () => {
  await using master = await startGuarded();
  const started = performance.now();
  const rpc = await master.rpc(tokens.all);
  // Frames that are too long for a key, and answers that no client reads.
  const port = master.rpcPort;
  const id = functionID("svc::WrappedMasterService", "ExistKey");
  const long = connect(port, "127.0.0.1");
  const ended = new Promise((resolve) => long.once("close", resolve));
  long.on("error", () => {});
  long.write(requestHead(1, id, 1 << 20));
  await ended;
  const deaf = connect(port, "127.0.0.1").on("error", () => {});
  deaf.pause();
  for (let at = 0; at < 5000; at++) deaf.write(requestHead(at, id, 0));
  const flood = Array.from({ length: 20 }, async () => {
    for (let at = 0; at < 25; at++) await assert.rejects(master.rpc(tokens.wrong), { name: "UNAUTHENTICATED" });
    const open = await master.rpc();
    await Promise.all(Array.from({ length: 200 }, () => assert.rejects(open.call("ServiceReady"), { name: "UNAUTHENTICATED" })));
    open.close();
    for (let at = 0; at < 25; at++) assert.equal((await fetch(`${master.url}/query_key?key=k`, { headers: bearer(tokens.wrong) })).status, 401);
  });
  while (flood.length > 0) {
    assert.equal((await rpc.call("ExistKey", "k", "")).ok, true);
    await flood.pop();
  }
  deaf.destroy();
  await until("a line in the log", () => (/"refused":\d+/.test(master.log()) ? true : undefined));
  const lines = master.log().match(/"refused":\d+/g) ?? [];
  // The log has at most one line a second, however many calls were refused.
  assert.ok(lines.length >= 1 && lines.length <= (performance.now() - started) / 1000 + 2, `${lines.length} lines`);
  const metrics = await (await fetch(`${master.url}/metrics`)).text();
  assert.ok(Number(/^svc_store_rpc_connections (\d+)/m.exec(metrics)?.[1]) < 20, metrics);
  rpc.close();
});
