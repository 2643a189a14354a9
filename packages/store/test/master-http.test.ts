// The master's HTTP, case by case: path, status, content type and body, as specified and as Mooncake's master answers it.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { runStore } from "@svc/harness/store-command.ts";
import { until } from "@svc/harness/until.ts";
import type { RpcClient } from "../src/rpc/client.ts";
import { displayVersion } from "../src/rpc/revision.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { startMaster, type TestMaster } from "./master.ts";

const JSON_TYPE = "application/json; charset=utf-8";
const METRICS_TYPE = "text/plain; version=0.0.4";

async function filled(master: TestMaster): Promise<RpcClient> {
  const rpc = await master.rpc();
  await rpc.call("MountSegment", segmentOf(1, 1n << 20n), clientID);
  for (const key of ["k1", "k,2", "ключ"].map((text) => Buffer.from(text).toString("latin1"))) {
    await rpc.call("PutStart", clientID, key, 5n, plain, "");
    await rpc.call("PutEnd", clientID, { key, checksum: undefined }, 4, "");
  }
  return rpc;
}

const buffer = (address: number) => ({ size_: 5, buffer_address_: address, protocol_: "tcp", transport_endpoint_: "holder-1:1" });
const BASE = 2 ** 40;
const id = "00000000-0000-0000-0000-000000000001";
const missing = { success: false, error_code: -704, error_message: "OBJECT_NOT_FOUND" };
const entry = (address: number) => ({ ok: true, values: [{ transport_endpoint_: "holder-1:1", buffer_descriptor: buffer(address) }] });

type Case = { readonly path: string; readonly method?: string; readonly status?: number; readonly type: string; readonly body: unknown };

const cases: readonly Case[] = [
  { path: "/query_key?key=k1", type: JSON_TYPE, body: { success: true, data: [buffer(BASE)] } },
  { path: "/query_key?key=k%31", type: JSON_TYPE, body: { success: true, data: [buffer(BASE)] } },
  { path: "/query_key?key=%D0%BA%D0%BB%D1%8E%D1%87", type: JSON_TYPE, body: { success: true, data: [buffer(BASE + 10)] } },
  { path: "/query_key?key=nothing", status: 404, type: JSON_TYPE, body: missing },
  { path: "/query_key?key=", status: 404, type: JSON_TYPE, body: missing },
  { path: "/query_key", status: 404, type: JSON_TYPE, body: missing },
  {
    path: "/batch_query_keys?keys=nothing,k1,k%2C2,k1",
    type: JSON_TYPE,
    body: { success: true, data: { "k,2": entry(BASE + 5), k1: entry(BASE), nothing: { ok: false, error: "OBJECT_NOT_FOUND" } } },
  },
  { path: "/batch_query_keys?keys=k1,", type: JSON_TYPE, body: { success: true, data: { "": { ok: false, error: "OBJECT_NOT_FOUND" }, k1: entry(BASE) } } },
  { path: "/batch_query_keys", status: 400, type: JSON_TYPE, body: { success: false, error: "No keys provided. Use ?keys=key1,key2,..." } },
  { path: "/batch_query_keys?keys=", status: 400, type: JSON_TYPE, body: { success: false, error: "No keys provided. Use ?keys=key1,key2,..." } },
  { path: "/get_all_keys", type: METRICS_TYPE, body: "k1\nk,2\nключ\n" },
  { path: "/get_all_keys?limit=2", type: METRICS_TYPE, body: "k1\nk,2\n" },
  { path: "/get_all_keys?limit=2&after=3", type: METRICS_TYPE, body: "ключ\n" },
  { path: "/get_all_segments", type: METRICS_TYPE, body: "holder-1:1\n" },
  { path: "/query_segment?segment=holder-1:1", type: METRICS_TYPE, body: "holder-1:1\nUsed(bytes): 15\nCapacity(bytes): 1048576\n" },
  { path: "/query_segment?segment=holder-1%3A1", type: METRICS_TYPE, body: "holder-1:1\nUsed(bytes): 15\nCapacity(bytes): 1048576\n" },
  { path: "/query_segment?segment=none", status: 404, type: METRICS_TYPE, body: "Failed to query segment" },
  {
    path: "/get_segments_detail",
    type: JSON_TYPE,
    body: {
      total_segments: 1,
      segments: [
        {
          segment_name: "holder-1:1",
          segment_id: id,
          client_id: clientID,
          base_address: "0x10000000000",
          size_bytes: 1 << 20,
          size_human: "0.000976563 GiB",
          te_endpoint: "holder-1:1",
          protocol: "tcp",
          status: "MOUNTED",
          allocator_used_bytes: 15,
          allocator_capacity_bytes: 1 << 20,
          allocator_usage_percent: (15 / 2 ** 20) * 100,
          readable: true,
        },
      ],
    },
  },
  { path: "/health", type: METRICS_TYPE, body: "OK" },
  { path: "/version", type: JSON_TYPE, body: { version: "2.0.0", display_version: displayVersion() } },
  { path: "/role", type: "text/plain; charset=utf-8", body: "leader" },
  { path: "/ha_status", type: "text/plain; charset=utf-8", body: "serving" },
  {
    path: "/api/v1/segments/status?segment=holder-1:1",
    type: JSON_TYPE,
    body: { success: true, segment: "holder-1:1", status: 1, status_name: "MOUNTED", error_code: 0, error_message: "" },
  },
  {
    path: "/api/v1/segments/status?segment=none",
    status: 404,
    type: JSON_TYPE,
    body: { success: false, error_code: -101, error_message: "SEGMENT_NOT_FOUND" },
  },
  {
    path: "/api/v1/segments/status",
    status: 400,
    type: JSON_TYPE,
    body: { success: false, error_code: -600, error_message: "Missing segment query parameter" },
  },
  { path: "/nowhere", status: 404, type: "text/plain; charset=utf-8", body: "404 Not Found" },
  { path: "/query_key?key=k1", method: "POST", status: 404, type: "text/plain; charset=utf-8", body: "404 Not Found" },
];

void test("HEAD of every path has the status and head of GET, without a body", async () => {
  await using master = await startMaster();
  await filled(master);
  for (const { path, method = "GET", status = 200, type } of cases) {
    if (method !== "GET") continue;
    const answer = await fetch(`${master.url}${path}`, { method: "HEAD" });
    assert.equal(answer.status, status, path);
    assert.equal(answer.headers.get("content-type"), type, path);
    assert.equal(await answer.text(), "", path);
  }
});

void test("every path of the master's HTTP answers as specified", async () => {
  await using master = await startMaster();
  await filled(master);
  for (const { path, method = "GET", status = 200, type, body } of cases) {
    const answer = await fetch(`${master.url}${path}`, { method });
    const text = await answer.text();
    assert.equal(answer.status, status, path);
    assert.equal(answer.headers.get("content-type"), type, path);
    if (type === JSON_TYPE) assert.deepEqual(JSON.parse(text), body, path);
    else assert.equal(text, body, path);
  }
  const metrics = await (await fetch(`${master.url}/metrics`)).text();
  assert.match(metrics, /^svc_store_keys 3$/m);
  assert.match(metrics, /^svc_store_rpc_items_total\{operation="put_start"\} 3$/m);
  assert.match(await (await fetch(`${master.url}/metrics/summary`)).text(), /^role=leader, state=serving.*Keys: 3/);
});

void test("a key with a line break is left out of /get_all_keys, which reports that; /api/v1/objects and svc store ls list it", async () => {
  await using master = await startMaster();
  const rpc = await filled(master);
  const broken = "k3\nk4";
  await rpc.call("PutStart", clientID, broken, 5n, plain, "");
  await rpc.call("PutEnd", clientID, { key: broken, checksum: undefined }, 4, "");
  const answer = await fetch(`${master.url}/get_all_keys`);
  assert.deepEqual([await answer.text(), answer.headers.get("x-keys-left-out")], ["k1\nk,2\nключ\n", "1"]);
  const all = ["k1", "k,2", "ключ", broken].sort();
  const { objects } = (await (await fetch(`${master.url}/api/v1/objects`)).json()) as { objects: { key: string }[] };
  assert.deepEqual(objects.map(({ key }) => key).sort(), all);
  const listed = await runStore(master.home, ["ls", "--output", "json"]);
  assert.deepEqual((JSON.parse(listed.stdout.toString()) as { key: string }[]).map(({ key }) => key).sort(), all);
});

void test("pages of /api/v1/objects and /get_all_keys are full wherever keys were removed, until the last one", async () => {
  await using master = await startMaster();
  const rpc = await filled(master);
  const put = async (key: string) => {
    await rpc.call("PutStart", clientID, key, 5n, plain, "");
    await rpc.call("PutEnd", clientID, { key, checksum: undefined }, 4, "");
  };
  for (let at = 0; at < 40; at++) await put(`gone-${at}`);
  for (const key of ["last-1", "last-2"]) await put(key);
  for (let at = 0; at < 40; at++) await rpc.call("Remove", `gone-${at}`, false, "");
  const pages: number[] = [];
  for (let after: number | null = 0; after !== null; ) {
    const page = (await (await fetch(`${master.url}/api/v1/objects?limit=2&after=${after}`)).json()) as { objects: { key: string }[]; next: number | null };
    pages.push(page.objects.length);
    after = page.next;
  }
  assert.deepEqual(
    pages.filter((count, at) => count !== 2 && at < pages.length - 1),
    [],
  );
  assert.equal(
    pages.reduce((sum, count) => sum + count, 0),
    5,
  );
  const keys = await fetch(`${master.url}/get_all_keys?limit=4`);
  assert.equal((await keys.text()).trim().split("\n").length, 4);
});

void test("with --compat, health, segments and ids look as Mooncake's master shows them", async () => {
  await using master = await startMaster({ flags: ["--compat"] });
  await filled(master);
  assert.equal(((await (await fetch(`${master.url}/health`)).json()) as { status: string }).status, "ok");
  assert.match(await (await fetch(`${master.url}/query_segment?segment=holder-1:1`)).text(), /^Capacity\(bytes\) : 1048576$/m);
  const { segments } = (await (await fetch(`${master.url}/get_segments_detail`)).json()) as { segments: Record<string, unknown>[] };
  assert.equal(segments[0]?.["status"], "OK");
  assert.equal(segments[0]?.["segment_id"], "0-1");
});

void test("a query over HTTP grants no lease and is not counted as a hit", async () => {
  await using master = await startMaster();
  const rpc = await filled(master);
  const items = async () => /^svc_store_rpc_items_total\{operation="get_replica_list"\} (\d+)$/m.exec(await (await fetch(`${master.url}/metrics`)).text())?.[1];
  await fetch(`${master.url}/query_key?key=k1`);
  await fetch(`${master.url}/batch_query_keys?keys=k1,k%2C2`);
  assert.equal(await items(), "0");
  assert.deepEqual(await rpc.call("Remove", "k1", false, ""), { ok: true, value: undefined });
  assert.deepEqual(await rpc.call("GetReplicaList", "k1", ""), { ok: false, code: -704 });
  assert.ok((await rpc.call("GetReplicaList", "k,2", "")).ok);
  assert.deepEqual(await rpc.call("Remove", "k,2", false, ""), { ok: false, code: -706 }, "a read over RPC does");
  const refused = await fetch(`${master.url}/api/v1/remove_all?force=true`, { method: "POST", body: "{bad" });
  assert.equal(refused.status, 400, "and nothing is removed");
  const answer = await fetch(`${master.url}/api/v1/remove_all?force=true`, { method: "POST" });
  assert.deepEqual(await answer.json(), { success: true, removed_count: 2 });
});

/** Returns everything that one connection answers to these pieces, sent one after the other. */
async function conversation(master: TestMaster, pieces: readonly string[], holds: (text: string) => boolean): Promise<string> {
  const socket = connect(Number(new URL(master.url).port), "127.0.0.1");
  let text = "";
  socket.setEncoding("utf8").on("data", (chunk: string) => void (text += chunk));
  socket.on("error", () => {});
  for (const piece of pieces) {
    socket.write(piece);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await until(`an answer to ${pieces.join("").slice(0, 80)}`, () => (holds(text) ? true : undefined));
  socket.destroy();
  return text;
}

const count = (text: string, part: string) => text.split(part).length - 1;

void test("one connection may request keys and anything else, in one piece or byte by byte, and is answered in order", async () => {
  await using master = await startMaster({ flags: ["--client_ttl=600s", "--store.suspect_after_ms=600000"] });
  const rpc = await filled(master);
  const host = "Host: x\r\n\r\n";
  const key = `GET /query_key?key=k1 HTTP/1.1\r\n${host}`;
  const health = `GET /health HTTP/1.1\r\n${host}`;
  const mixed = await conversation(master, [key + key + health + key], (text) => count(text, "HTTP/1.1 200 OK") === 4);
  assert.deepEqual(
    [...mixed.matchAll(/"success":true|\r\nOK|^OK/gm)].map(([part]) => part.trim()),
    ['"success":true', '"success":true', "OK", '"success":true'],
  );
  await conversation(master, [...key], (text) => count(text, '"success":true') === 1);
  const posted = `POST /api/v1/remove_all HTTP/1.1\r\nContent-Length: 2\r\n${host}`;
  const after = await conversation(master, [key + posted, "{", `}${key}`], (text) => count(text, "HTTP/1.1") === 3);
  assert.match(after, /"success":true,"data"[\s\S]*"removed_count":[\s\S]*HTTP\/1\.1/);
  const closing = await conversation(master, [`GET /query_key?key=none HTTP/1.1\r\nConnection: close\r\n${host}`], (text) => text.includes("-704"));
  assert.match(closing, /404 Not Found[\s\S]*Connection: close/);
  await conversation(master, [`GET /query_key?key=${"k".repeat(40_000)}`], (text) => text.includes("HTTP/1.1 431"));
  for (const wrong of ["GET /query_key?key=k1 HTTP/2\r\n\r\n", "GET /query_key? key HTTP/1.1\r\n\r\n", "GET /query_key?key=k1 HTTP/1.1\r\n: x\r\n\r\n"])
    await conversation(master, [wrong], (text) => text.includes("HTTP/1.1 400"));
  assert.equal((await fetch(`${master.url}/health`)).status, 200);
  rpc.close();
});
