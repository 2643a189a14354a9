// JSON of any kind sent to the REST service and to the master's HTTP: an answer below 500 each time, nothing mounted, and others served.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { startMaster } from "./master.ts";
import { startService } from "./service.ts";

const residentBytes = (pid: number) => Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024;

/** Repeatable: what failed is found again by its seed. */
function chance(seed: number): (below: number) => number {
  let state = seed >>> 0 || 1;
  return (below) => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) >>> 0;
    return state % below;
  };
}

const oddities: readonly string[] = [
  ...[
    "",
    "null",
    "true",
    "0",
    "-0",
    "1e999",
    "-1",
    "1.5",
    "1e308",
    "9007199254740993",
    "18446744073709551616",
    '""',
    '"\\u0000"',
    '"\\ud800"',
    "[]",
    "{}",
    "[[]]",
  ],
  ...[
    '"../../etc/passwd"',
    '"/"',
    '"/a/b"',
    '"."',
    '".."',
    '"\u202e"',
    "NaN",
    "undefined",
    "'x'",
    '"a',
    "{",
    "[1,",
    '{"a":}',
    '{"__proto__":{"x":1}}',
    "[null]",
  ],
  ...[`"${"x".repeat(70_000)}"`, "[".repeat(20_000), '{"a":'.repeat(5000), `[${"0,".repeat(20_000)}0]`, "\ufeff{}", "\u0000"],
];

const services: readonly (readonly [string, string, readonly string[]])[] = [
  ["POST", "/api/mount", ["size", "protocol", "location"]],
  ["POST", "/api/mount_shm", ["name", "size", "offset", "protocol", "location"]],
  ["POST", "/api/unmount", ["segment_ids", "grace_period_seconds"]],
  ["POST", "/api/unmount_shm", ["segment_ids", "grace_period_seconds"]],
  ["POST", "/api/unmount_local_disk", ["grace_period_seconds"]],
  ["POST", "/api/reconfigure", ["mode", "path", "size", "offset", "protocol", "location"]],
  ["PUT", "/api/put", ["key", "value"]],
];
const masters: readonly (readonly [string, string, readonly string[]])[] = [
  ["POST", "/api/v1/drain_jobs", ["segments", "target_segments", "max_concurrency"]],
  ["PUT", "/api/v1/tenant_quotas?tenant_id=t", ["requested_quota_bytes"]],
  ["POST", "/api/v1/remove_all", ["force"]],
];

function bodies(fields: readonly string[], next: (below: number) => number): string[] {
  const any = () => oddities[next(oddities.length)] as string;
  const object = () => `{${fields.map((name) => `${JSON.stringify(next(8) === 0 ? any() : name)}:${any()}`).join(next(30) === 0 ? ",," : ",")}}`;
  return [...oddities, ...Array.from({ length: 40 }, object)];
}

async function fuzz(url: string, calls: typeof services, next: (below: number) => number): Promise<void> {
  for (const [method, path, fields] of calls)
    for (const body of bodies(fields, next)) {
      const answer = await fetch(`${url}${path}`, { method, headers: { "Content-Type": "application/json" }, body, signal: AbortSignal.timeout(60_000) });
      const said = await answer.text();
      const what = `${method} ${path} ${body.slice(0, 120)}: ${answer.status} ${said.slice(0, 200)}`;
      assert.ok(answer.status < 500, what);
      // What was given is named, and no more than that.
      assert.ok(said.length < 2 * body.length + 10_000, what);
      if (path.startsWith("/api/mount") && answer.status === 200) assert.fail(`mounted: ${what}`);
    }
}

void test("the REST service and the master answer JSON of any kind with what is wrong with it, mount nothing for it, and stay as large as they were", async (t) => {
  const seed = Number(process.env["SVC_TEST_SEED"] ?? Date.now() % 1_000_000);
  t.diagnostic(`seed ${seed}`);
  const next = chance(seed);
  await using master = await startMaster({ flags: ["--enable_multi_tenants"] });
  await using service = await startService({ master: master.rpcPort, flags: ["--global_segment_size=16mb"] });
  await fuzz(service.url, services.slice(0, 1), next);
  await fuzz(master.url, masters.slice(0, 1), next);
  const before = [residentBytes(service.pid), residentBytes(master.pid)];
  await fuzz(service.url, services, next);
  await fuzz(master.url, masters, next);
  for (const path of [
    "/query_key?key=%",
    "/query_key?key=%ff%fe",
    `/batch_query_keys?keys=${"%2C,".repeat(1000)}`,
    "/query_segment?segment=%00",
    "/get_all_keys?limit=-1&after=%",
  ])
    assert.ok((await fetch(`${master.url}${path}`)).status < 501, path);
  const after = [residentBytes(service.pid), residentBytes(master.pid)];
  for (const [at, bytes] of after.entries()) assert.ok(bytes - (before[at] ?? 0) < 100 << 20, `grown by ${bytes - (before[at] ?? 0)} bytes`);
  const detail = (await (await fetch(`${master.url}/get_segments_detail`)).json()) as { total_segments: number };
  assert.equal(detail.total_segments, 1);
  assert.equal((await fetch(`${service.url}/health`)).status, 200);
  assert.equal((await fetch(`${master.url}/health`)).status, 200);
});
