// Access control on HTTP: the answer of each path of the master and the REST service to each kind of token, and refused settings.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { bearer, keyFile, startGuarded, tokens } from "./access.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { startMaster } from "./master.ts";
import { startService } from "./service.ts";

type Case = readonly [method: string, path: string, tenant: number, all: number];

/** The expected status for a tenant's key, and for an unrestricted one. */
const masterCases: readonly Case[] = [
  ["GET", "/query_key?key=k", 200, 404],
  ["GET", "/query_key?key=k&tenant_id=blue", 200, 200],
  ["GET", "/query_key?key=r&tenant_id=red", 403, 200],
  ["GET", "/query_key?tenant_id=blue&tenant_id=red&key=r", 404, 404],
  ["GET", "/batch_query_keys?keys=k,r", 200, 200],
  ["GET", "/batch_query_keys?keys=k&tenant_id=red", 403, 200],
  ["GET", "/get_all_keys", 200, 200],
  ["GET", "/get_all_keys?tenant_id=red", 403, 200],
  ["GET", "/api/v1/objects", 200, 200],
  ["GET", "/api/v1/tenant_quotas", 200, 200],
  ["GET", "/api/v1/tenant_quotas?tenant_id=red", 403, 200],
  ["PUT", "/api/v1/tenant_quotas", 403, 400],
  ["DELETE", "/api/v1/tenant_quotas?tenant_id=none", 403, 404],
  ["GET", "/ha_status", 200, 200],
  ["GET", "/kv_events/status", 200, 200],
  ["GET", "/get_all_segments", 403, 200],
  ["GET", "/query_segment?segment=holder-1:1", 403, 200],
  ["GET", "/get_segments_detail", 403, 200],
  ["GET", "/api/v1/segments/status?segment=holder-1:1", 403, 200],
  ["GET", "/api/v1/drain_jobs", 403, 200],
  ["GET", "/api/v1/drain_jobs/query?job_id=1", 403, 404],
  ["POST", "/api/v1/drain_jobs", 403, 400],
  ["POST", "/api/v1/drain_jobs/cancel?job_id=1", 403, 404],
  ["GET", "/nothing", 403, 404],
  ["POST", "/api/v1/remove_all?tenant_id=red&force=true", 403, 200],
  ["POST", "/api/v1/remove_all?force=true", 200, 200],
];

async function check(url: string, cases: readonly Case[], says: RegExp): Promise<void> {
  for (const [method, path, tenant, all] of cases) {
    const ask = (headers: Record<string, string>) => fetch(`${url}${path}`, { method, headers });
    for (const headers of [{}, bearer(tokens.wrong), bearer(""), { Authorization: tokens.all }, { Authorization: `Basic ${tokens.all}` }]) {
      const answer = await ask(headers);
      assert.equal(answer.status, 401, `${method} ${path}`);
      assert.equal(answer.headers.get("www-authenticate"), "Bearer");
      assert.match(await answer.text(), says);
    }
    assert.equal((await ask(bearer(tokens.blue))).status, tenant, `${method} ${path} with a tenant's key`);
    assert.equal((await ask(bearer(tokens.all))).status, all, `${method} ${path} with a key for everything`);
  }
}

void test("every path of the master's HTTP but those of probes requires a token, and a tenant's key sees its tenant alone", async () => {
  await using master = await startGuarded(["--client_ttl=600s", "--store.suspect_after_ms=600000", "--default_kv_lease_ttl=1ms"]);
  const rpc = await master.rpc(tokens.all);
  await rpc.call("MountSegment", segmentOf(1, 1n << 20n), clientID);
  for (const [key, tenant] of [
    ["k", "blue"],
    ["r", "red"],
    ["d", ""],
  ] as const) {
    assert.equal((await rpc.call("PutStart", clientID, key, 10n, plain, tenant)).ok, true);
    assert.equal((await rpc.call("PutEnd", clientID, { key, checksum: undefined }, 4, tenant)).ok, true);
  }
  for (const path of ["/health", "/version", "/metrics", "/metrics/summary", "/role", "/leader"])
    assert.equal((await fetch(`${master.url}${path}`)).status, 200, path);
  const text = async (path: string, token: string) => (await fetch(`${master.url}${path}`, { headers: bearer(token) })).text();
  assert.equal(await text("/get_all_keys", tokens.blue), "k\n");
  assert.deepEqual((await text("/get_all_keys", tokens.all)).split("\n").sort(), ["", "d", "k", "r"]);
  assert.equal(await text("/get_all_keys?tenant_id=red", tokens.all), "r\n");
  const objects = JSON.parse(await text("/api/v1/objects", tokens.red)) as { objects: { key: string }[] };
  assert.deepEqual(
    objects.objects.map(({ key }) => key),
    ["r"],
  );
  const entries = JSON.parse(await text("/batch_query_keys?keys=k,r", tokens.blue)) as { data: Record<string, { ok: boolean }> };
  assert.deepEqual([entries.data["k"]?.ok, entries.data["r"]?.ok], [true, false]);
  assert.match(await text("/api/v1/tenant_quotas", tokens.blue), /"tenant_id":"blue"/);
  await check(master.url, masterCases, /"error_message":"expected the header Authorization: Bearer TOKEN/);
  assert.deepEqual(await rpc.call("ExistKey", "d", ""), { ok: true, value: false });
  rpc.close();
});

void test("no request for /query_key goes past the check: pipelined, cut, or after one with a token", async () => {
  await using master = await startGuarded();
  const plainRequest = "GET /query_key?key=k HTTP/1.1\r\nHost: x\r\n\r\n";
  const withToken = `GET /query_key?key=k HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${tokens.all}\r\n\r\n`;
  const statuses = (parts: readonly string[], count: number) =>
    new Promise<string[]>((resolve, reject) => {
      const socket = connect(Number(new URL(master.url).port), "127.0.0.1");
      let heard = "";
      socket.on("error", reject);
      socket.setEncoding("latin1").on("data", (chunk: string) => {
        heard += chunk;
        const found = [...heard.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status = ""]) => status);
        if (found.length < count) return;
        socket.destroy();
        resolve(found);
      });
      void (async () => {
        for (const part of parts) {
          socket.write(part);
          await new Promise((next) => setTimeout(next, 20));
        }
      })();
    });
  assert.deepEqual(await statuses([plainRequest], 1), ["401"]);
  assert.deepEqual(await statuses([plainRequest.repeat(3)], 3), ["401", "401", "401"]);
  assert.deepEqual(await statuses([plainRequest.slice(0, 15), plainRequest.slice(15)], 1), ["401"]);
  assert.deepEqual(await statuses([withToken, plainRequest, withToken + plainRequest], 4), ["404", "401", "404", "401"]);
});

/** The service's tenant is blue. */
const serviceCases: readonly Case[] = [
  ["GET", "/api/get/none", 404, 404],
  ["GET", "/api/exist/none", 200, 200],
  ["DELETE", "/api/remove/none", 404, 404],
  ["DELETE", "/api/remove_all", 200, 200],
  ["PUT", "/api/put", 400, 400],
  ["POST", "/api/mount", 403, 400],
  ["POST", "/api/unmount", 403, 400],
  ["POST", "/api/mount_shm", 403, 400],
  ["POST", "/api/unmount_shm", 403, 400],
  ["POST", "/api/unmount_local_disk", 403, 200],
  ["POST", "/api/reconfigure", 403, 400],
  ["GET", "/nothing", 403, 404],
];

void test("the REST service requires a token of its callers, presents its own to the master, and does without one for probes", async () => {
  await using master = await startGuarded();
  const home = makeHome();
  try {
    const file = keyFile(home);
    const flags = [`--store_service.access_file=${file}`, `--store_service.token_file=${master.file}`, "--tenant_id=blue", "--global_segment_size=32mb"];
    await using service = await startService({ master: master.rpcPort, flags });
    for (const path of ["/health", "/version", "/metrics"]) assert.equal((await fetch(`${service.url}${path}`)).status, 200, path);
    await check(service.url, serviceCases, /"error":"Expected the header Authorization: Bearer TOKEN/);
    const ask = (token: string, method: string, path: string, body?: string) =>
      fetch(`${service.url}${path}`, { method, headers: bearer(token), ...(body === undefined ? {} : { body }) });
    assert.equal((await ask(tokens.blue, "PUT", "/api/put", '{"key":"k","value":"v"}')).status, 200);
    assert.equal(await (await ask(tokens.all, "GET", "/api/get/k")).text(), "v");
    assert.equal((await ask(tokens.red, "GET", "/api/get/k")).status, 403);
    assert.equal((await fetch(`${master.url}/query_key?key=k`, { headers: bearer(tokens.blue) })).status, 200);
    await service.kill("SIGTERM");
    // The token comes from the environment here; one that the master does not know ends the start at once.
    await using other = await startService({ master: master.rpcPort, env: { SVC_STORE_TOKEN: tokens.all, SVC_STORE_SERVICE_TOKEN: tokens.red } });
    assert.equal((await fetch(`${other.url}/api/exist/k`, { headers: bearer(tokens.all) })).status, 401);
    assert.equal((await fetch(`${other.url}/api/exist/k`, { headers: bearer(tokens.red) })).status, 200);
    await assert.rejects(startService({ master: master.rpcPort, env: { SVC_STORE_TOKEN: tokens.wrong } }), /the token is not one of this master's/);
  } finally {
    removeHome(home);
  }
});

void test("a file of keys that cannot be used is refused at the start by its setting's name, and one that others can read is warned of", async () => {
  const home = makeHome();
  try {
    const start = async (flags: readonly string[], env = {}) => {
      const master = await startMaster({ home, flags, env });
      await master.kill("SIGTERM");
      return master.log();
    };
    const flag = (text?: string, mode?: number) => `--store.access_file=${keyFile(home, text, mode)}`;
    const refused = (flags: readonly string[], says: RegExp) =>
      assert.rejects(start(flags), (error: Error) => says.test(error.message) && !error.message.includes(tokens.all), String(says));
    await refused([`--store.access_file=${join(home, "none")}`], /setting store\.access_file: .*none: there is no such file/);
    await refused([`--store.access_file=${home}`], /setting store\.access_file: .*is not a regular file/);
    for (const [text, says] of [
      ["\n# nobody\n", /setting store\.access_file: .*has no key; expected lines of TOKEN \[tenant\]/],
      ["short", /setting store\.access_file: .*line 1: a token has 16 to 512 visible ASCII characters/],
      [`${tokens.all}\n${tokens.all}`, /line 2: this token is given twice/],
      [`${tokens.all} a b`, /line 1: expected TOKEN, or TOKEN and a tenant/],
      [`${tokens.all}\n${tokens.blue} blue`, /line 2: a key of one tenant: store\.enable_multi_tenants is off/],
    ] as const)
      await refused([flag(text)], says);
    await refused(["--store.access_trusted_cidrs=10.0.0.0/33"], /setting store\.access_trusted_cidrs.*expected ADDRESS\/BITS/);
    await assert.rejects(start([], { SVC_STORE_TOKEN: "short" }), /environment variable SVC_STORE_TOKEN: a token has 16 to 512/);
    assert.match(await start([flag(tokens.all, 0o644)]), /setting store\.access_file: other users of this machine can read/);
    assert.doesNotMatch(await start([flag(tokens.all, 0o600)]), /other users/);
  } finally {
    removeHome(home);
  }
});
