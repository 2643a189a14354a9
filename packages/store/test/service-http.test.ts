// The REST service's HTTP, case by case, and its start: configuration, readiness, a missing master.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { freePorts } from "@svc/harness/ports.ts";
import { until } from "@svc/harness/until.ts";
import { startMaster } from "./master.ts";
import { startService } from "./service.ts";

const GRACE = "Invalid grace_period_seconds, must be a non-negative integer no greater than";
const ID = "00000000-0000-0000-0000-00000000ffff";

/** Method, path, body, status, and the beginning of the error; an empty error means success. */
const cases: readonly (readonly [method: string, path: string, body: unknown, status: number, error: string])[] = [
  ["POST", "/api/mount_shm", "{", 400, "Malformed JSON body"],
  ["POST", "/api/mount_shm", "", 400, "Malformed JSON body"],
  ["POST", "/api/mount_shm", [], 400, "Request body must be a JSON object"],
  ...[{}, { name: "a" }, { size: 1 }, { name: 5, size: 1 }, { name: "", size: 1 }, { name: "/", size: 1 }, { name: "a/b", size: 1 }].map(
    (body) => ["POST", "/api/mount_shm", body, 400, "Missing or invalid name or size"] as const,
  ),
  ...[".", "..", "/..", "//a", "a\0b"].map((name) => ["POST", "/api/mount_shm", { name, size: 1 }, 400, "Missing or invalid name or size"] as const),
  ["POST", "/api/mount_shm", { name: "a", size: 0 }, 400, "Missing or invalid name or size"],
  ["POST", "/api/mount_shm", { name: "a", size: 1, offset: -1 }, 400, "Invalid offset"],
  ["POST", "/api/mount_shm", { name: "svc-test-there-is-none", size: 1 }, 400, "There is no shared memory object"],
  ...[0, -1, 1.5, true, "5", null, undefined].map((size) => ["POST", "/api/mount", { size }, 400, "Invalid size, must be a positive integer"] as const),
  ["POST", "/api/mount", { size: 1, protocol: 5 }, 400, "Invalid protocol, must be a string"],
  ["POST", "/api/mount", { size: 1, protocol: "carrier-pigeon" }, 501, 'protocol "carrier-pigeon" is not installed'],
  ["POST", "/api/mount", "nonsense", 400, "Malformed JSON body"],
  ["POST", "/api/unmount", {}, 400, "Missing segment_ids"],
  ["POST", "/api/unmount", { segment_ids: [] }, 400, "Missing segment_ids"],
  ["POST", "/api/unmount_shm", { segment_ids: 5 }, 400, "Missing segment_ids"],
  ["POST", "/api/unmount", { segment_ids: ["x"] }, 400, "Invalid segment_ids"],
  ["POST", "/api/unmount", { segment_ids: ID, grace_period_seconds: -1 }, 400, GRACE],
  ["POST", "/api/unmount", { segment_ids: ID, grace_period_seconds: "5" }, 400, GRACE],
  ["POST", "/api/unmount_local_disk", "", 200, ""],
  ["POST", "/api/unmount_local_disk", "{", 400, "Malformed JSON body"],
  ["POST", "/api/unmount_local_disk", "5", 400, "Request body must be a JSON object"],
  ["POST", "/api/unmount_local_disk", { grace_period_seconds: 3601 }, 400, `${GRACE} 3600`],
  ["POST", "/api/unmount_local_disk", { grace_period_seconds: true }, 400, GRACE],
  ["POST", "/api/unmount_local_disk", { grace_period_seconds: 3600 }, 200, ""],
  ["POST", "/api/unmount_local_disk", {}, 200, ""],
  ["POST", "/api/reconfigure", { mode: "both" }, 400, "Invalid mode. Use 'decode' or 'prefill'"],
  ["POST", "/api/reconfigure", { mode: "decode" }, 400, "Missing path or size for decode mode"],
  ["POST", "/api/reconfigure", { mode: "prefill" }, 200, ""],
  ...[{}, { key: "a" }, { value: "a" }, { key: "", value: "a" }, { key: "a", value: "" }, { key: "a", value: 5 }].map(
    (body) => ["PUT", "/api/put", body, 400, "Missing key or value"] as const,
  ),
  ["PUT", "/api/put", "{", 400, "Malformed JSON body"],
  ["PUT", "/api/put", '{"key":"k","value":"\\ud800"}', 400, "Invalid value, must be Unicode text"],
  ["PUT", "/api/put", { key: "x".repeat(100), value: "v".repeat(20_000_000) }, 503, "memory for 20000000 bytes"],
  ["PUT", "/api/put", { key: "k", value: "v", tenant_id: "red" }, 400, "This service's objects are tenant \"default\"'s"],
  ["PUT", "/api/put", { key: "k", value: "v", tenantId: "default" }, 400, "There is no parameter tenantId"],
  ["PUT", "/api/put", { key: "", value: "v", tenant_id: null }, 400, "Missing key or value"],
  ["DELETE", "/api/remove_all?tenant_id=&tenant_id=red", undefined, 400, "This service's objects are tenant \"default\"'s"],
  ["DELETE", "/api/remove_all?tenant%5Fid=default", undefined, 400, "There is no parameter tenant%5Fid"],
  ["DELETE", "/api/remove_all?TENANT_ID=default", undefined, 400, "There is no parameter TENANT_ID"],
  ["DELETE", "/api/remove_all?tenant_id=red", undefined, 400, "This service's objects are tenant \"default\"'s"],
  ["DELETE", "/api/remove_all?tenant_id=default", undefined, 200, ""],
  ["DELETE", "/api/remove_all?tenant=default", undefined, 400, "There is no parameter tenant: a tenant is named by tenant_id"],
  ["GET", "/api/get/none", undefined, 404, "Key not found"],
  ["GET", "/api/get/", undefined, 400, "Missing key"],
  ["GET", "/api/exist/none", undefined, 200, ""],
  ["GET", "/api/exist/%ff", undefined, 400, "The key is not percent-encoded UTF-8"],
  ["DELETE", "/api/remove/none", undefined, 404, "removing key none: it is not there (OBJECT_NOT_FOUND, -704)"],
  ["DELETE", "/api/remove_all", undefined, 200, ""],
  ["GET", "/api/mount", undefined, 405, "Expected POST, got GET"],
  ["POST", "/api/nothing", {}, 404, "There is no /api/nothing"],
  ["POST", "/constructor", {}, 404, "There is no /constructor"],
];

void test("each call of the REST service answers as its table specifies", async () => {
  await using master = await startMaster();
  await using service = await startService({ master: master.rpcPort, flags: ["--global_segment_size=16mb"] });
  for (const [method, path, body, status, error] of cases) {
    const answer = await service.ask(method, path, body);
    const what = `${method} ${path} ${JSON.stringify(body)}`;
    assert.equal(answer.status, status, `${what}: ${JSON.stringify(answer.body)}`);
    if (error !== "") assert.ok(String(answer.body["error"]).startsWith(error), `${what}: ${answer.body["error"]}`);
  }
  assert.deepEqual((await service.ask("DELETE", "/api/remove_all")).body, { status: "success removed 0 keys" });
  assert.deepEqual((await service.ask("GET", "/api/exist/none")).body, { exists: false });
  const answer = await fetch(`${service.url}/api/mount`, { method: "POST", body: "{}" });
  assert.equal(answer.headers.get("content-type"), "application/json; charset=utf-8");
  assert.match(await (await fetch(`${service.url}/metrics`)).text(), /svc_store_service_http_seconds_count\{path="\/api\/exist\/",code="200"\} 2/);
  assert.deepEqual((await service.ask("GET", "/version")).body["version"], "2.0.0");
});

void test("a value that is put over HTTP is read back, by HTTP and by a client of Mooncake's wire, until it is removed", async () => {
  await using master = await startMaster({ flags: ["--default_kv_lease_ttl=1s"] });
  await using service = await startService({ master: master.rpcPort, flags: ["--global_segment_size=64mb"] });
  const value = "äöü€ ".repeat(100_000);
  const key = "a/key with spaces, ünd %";
  assert.deepEqual(await service.ask("PUT", "/api/put", { key, value }), { status: 200, body: { status: "success" } });
  assert.equal((await service.ask("PUT", "/api/put", { key, value: "another" })).status, 200, "a key that is there keeps its value");
  const path = `/api/get/${encodeURIComponent(key)}`;
  const got = await fetch(`${service.url}${path}`);
  assert.deepEqual([got.status, got.headers.get("content-type"), await got.text()], [200, "application/octet-stream", value]);
  assert.deepEqual((await service.ask("GET", `/api/exist/${encodeURIComponent(key)}`)).body, { exists: true });
  const rpc = await master.rpc();
  const found = await rpc.call("GetReplicaList", Buffer.from(key).toString("latin1"), "");
  rpc.close();
  const place = found.ok ? found.value.replicas[0]?.place : undefined;
  assert.equal(place?.type === "memory" ? place.buffer.sizeBytes : undefined, BigInt(Buffer.byteLength(value)));
  const remove = () => service.ask("DELETE", `/api/remove/${encodeURIComponent(key)}`);
  assert.equal((await remove()).status, 409, "its readers have a lease");
  await until("the lease is over", async () => ((await remove()).status === 200 ? true : undefined), 500);
  assert.equal((await fetch(`${service.url}${path}`)).status, 404);
  const many = await Promise.all(Array.from({ length: 50 }, (_, at) => service.ask("PUT", "/api/put", { key: `many-${at}`, value: `value ${at}` })));
  assert.deepEqual([...new Set(many.map(({ status }) => status))], [200]);
  const texts = await Promise.all(many.map(async (_, at) => (await fetch(`${service.url}/api/get/many-${at}`)).text()));
  assert.deepEqual(
    texts,
    many.map((_, at) => `value ${at}`),
  );
});

void test("a body that is too long is refused, and many half bodies together are bounded", async () => {
  await using master = await startMaster();
  const flags = ["--global_segment_size=16mb", "--store_service.max_body_bytes=1500000", "--store_service.max_buffered_bytes=2000000"];
  await using service = await startService({ master: master.rpcPort, flags });
  assert.equal((await service.ask("POST", "/api/mount", "x".repeat(1_500_001))).status, 413);
  const { port } = new URL(service.url);
  const said: string[] = [];
  const sockets = await Promise.all(
    Array.from({ length: 6 }, async (_, at) => {
      const socket = connect(Number(port), "127.0.0.1");
      socket.on("error", () => {});
      socket.on("data", (bytes) => void (said[at] = bytes.toString()));
      await new Promise((resolve) => socket.once("connect", resolve));
      socket.write(`POST /api/mount HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n${"x".repeat(900_000)}`);
      return socket;
    }),
  );
  await until("four of six are refused", () => (said.filter((text) => text?.startsWith("HTTP/1.1 503")).length === 4 ? true : undefined));
  for (const socket of sockets) socket.destroy();
  assert.equal((await service.ask("POST", "/api/mount", { size: 1 })).status, 200);
});

void test("a service answers /health with 503 until its master answers, and again while it does not", async () => {
  await using master = await startMaster();
  await master.kill();
  const [port = 0] = await freePorts(1);
  await using service = await startService({ master: master.rpcPort, port, isAwaited: false, flags: ["--global_segment_size=16mb"] });
  const health = async () => (await fetch(`http://127.0.0.1:${port}/health`).catch(() => undefined))?.status;
  await until("it listens", async () => ((await health()) === 503 ? true : undefined));
  assert.equal((await service.post("/api/mount", { size: 1 })).status, 503);
  await master.start();
  await until("it is ready", async () => ((await health()) === 200 ? true : undefined));
  await master.kill();
  await until("it says so", async () => ((await health()) === 503 ? true : undefined));
  assert.equal(await service.kill("SIGTERM"), 0, "it ends without its master");
});

void test("a browser at the service's URL gets a page with its API, and so does one at its master's", async () => {
  await using master = await startMaster();
  await using service = await startService({ master: master.rpcPort });
  for (const [url, title, route] of [
    [service.url, "svc store service", "PUT /api/put"],
    [master.url, "svc store master", "GET /query_key"],
  ] as const) {
    const page = await fetch(`${url}/`);
    assert.deepEqual([page.status, page.headers.get("content-type")], [200, "text/html; charset=utf-8"]);
    const text = await page.text();
    for (const says of [`<h1>${title}</h1>`, "<h2>Next</h2>", `<code>${route}</code>`, "docs/store.md"]) assert.ok(text.includes(says), says);
  }
});

void test("a service that finds no master within --max-wait-time ends, and names the settings to check", async () => {
  const [port = 0] = await freePorts(1);
  await assert.rejects(
    startService({ master: port, flags: ["--max-wait-time=1"] }),
    /store service: the store's master at 127.0.0.1:\d+: .*store_service.master_server_address/,
  );
  await using master = await startMaster();
  await assert.rejects(startService({ master: master.rpcPort, port: Number(new URL(master.url).port) }), /store_service.port: .*EADDRINUSE/);
});

void test("the configuration is Mooncake's JSON file with its own names; flags, -D and variables take precedence", async () => {
  await using master = await startMaster();
  const folder = mkdtempSync(join(tmpdir(), "svc-test-"));
  const file = (content: unknown) => {
    const path = join(folder, "service.json");
    writeFileSync(path, typeof content === "string" ? content : JSON.stringify(content));
    return path;
  };
  const required = { local_hostname: "127.0.0.1", metadata_server: "P2PHANDSHAKE", master_server_address: `127.0.0.1:${master.rpcPort}` };
  const sizes = async () =>
    ((await (await fetch(`${master.url}/get_segments_detail`)).json()) as { segments: { size_bytes: number }[] }).segments.map((row) => row.size_bytes);
  try {
    {
      await using service = await startService({
        flags: [`--config=${file({ ...required, global_segment_size: "0.5 GB", some_new_name: 1 })}`, "--log-level=warn"],
      });
      assert.deepEqual(await sizes(), [2 ** 29]);
      assert.match(service.log(), /some_new_name/);
      await service.kill("SIGTERM");
    }
    {
      await using service = await startService({ flags: [`--config=${file(required)}`] });
      assert.deepEqual(await sizes(), [3_355_443_200], "Mooncake's default");
      await service.kill("SIGTERM");
    }
    {
      await using service = await startService({ flags: [`--config=${file({ ...required, global_segment_size: 1024 })}`, "-D", "global_segment_size=32mb"] });
      assert.deepEqual(await sizes(), [2 ** 25]);
      await service.kill("SIGTERM");
    }
    {
      const env = { MOONCAKE_MASTER: required.master_server_address, MOONCAKE_GLOBAL_SEGMENT_SIZE: "16mb" };
      await using service = await startService({ env, flags: ["--brand=mooncake"] });
      assert.deepEqual(await sizes(), [2 ** 24]);
      await service.kill("SIGTERM");
    }
    for (const [content, message] of [
      ["{", /service.json is not valid JSON/],
      ["[]", /expected a JSON object/],
      [{ ...required, metadata_server: undefined }, /store_service.metadata_server \(.*service.json\)/],
      [{ ...required, enable_ssd_offload: true }, /ssd_offload_path.*expected a folder on the disk/],
      [{ ...required, global_segment_size: "a lot" }, /global_segment_size.*expected bytes such as/],
      [{ ...required, global_segment_size: 10 }, /global_segment_size.*at least 16 MiB; a number without a unit counts bytes/],
      [{ ...required, enable_ssd_offload: true, ssd_offload_path: folder, ssd_offload_size: "200" }, /ssd_offload_size.*at least 1 MiB/],
      [{ ...required, protocol: "pigeon" }, /expected one of tcp, rdma, shm, got "pigeon"/],
    ] as const)
      await assert.rejects(startService({ flags: [`--config=${file(content)}`, "--max-wait-time=1"] }), message);
    await assert.rejects(
      startService({ flags: [`--config=${file(required)}`, "--brand=mooncake,svc"] }),
      /brand.*expected one word.*that the master's --brand lists/,
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
});

void test("before it has joined a master, a malformed request is 400, and unmount_local_disk without a disk succeeds", async () => {
  const [port = 0, nobody = 0] = await freePorts(2);
  await using service = await startService({ master: nobody, port, isAwaited: false });
  await until("it listens", async () => ((await service.ask("GET", "/health").catch(() => undefined)) === undefined ? undefined : true));
  assert.equal((await service.ask("GET", "/health")).status, 503);
  const path = "/api/unmount_local_disk";
  for (const body of ["{", "5", { grace_period_seconds: 3601 }, { grace_period_seconds: "5" }]) assert.equal((await service.post(path, body)).status, 400);
  for (const body of ["", {}, { grace_period_seconds: 1 }]) assert.deepEqual(await service.post(path, body), { status: 200, body: { status: "success" } });
  for (const other of ["/api/mount", "/api/unmount", "/api/mount_shm"]) {
    assert.equal((await service.post(other, "{")).status, 400, other);
    assert.equal((await service.post(other, { size: 1 })).status, 503, other);
  }
});
