// The HTTP contract of route migrations, case by case from one table, against a real admin server, master and services.
import assert from "node:assert/strict";
import { chmodSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { until } from "@svc/harness/until.ts";
import { type Cluster, startCluster } from "./cluster.ts";

const good = { authority: "store-master", tenant: "default", key: "k", source_segment: "s", target_segments: ["x"], task_executor: "e" };
const without = (name: keyof typeof good) => Object.fromEntries(Object.entries(good).filter(([each]) => each !== name));
const MIGRATIONS = "/v1/route-migrations";

type Refusal = readonly [method: string, path: string, body: unknown, status: number, says: RegExp];
const refusals: readonly Refusal[] = [
  ...(["copy", "move"] as const).flatMap((mode): Refusal[] => {
    const path = `${MIGRATIONS}/${mode}`;
    return [
      ...(Object.keys(good) as (keyof typeof good)[]).map((name): Refusal => ["POST", path, without(name), 400, new RegExp(`^${name}: `)]),
      ...(["authority", "tenant", "key", "source_segment", "task_executor"] as const).flatMap((name): Refusal[] => [
        ["POST", path, { ...good, [name]: "" }, 400, new RegExp(`^${name}: must not be blank`)],
        ["POST", path, { ...good, [name]: " \t" }, 400, new RegExp(`^${name}: must not be blank`)],
        ["POST", path, { ...good, [name]: 5 }, 400, new RegExp(`^${name}: `)],
        ["POST", path, { ...good, [name]: null }, 400, new RegExp(`^${name}: `)],
      ]),
      ["POST", path, { ...good, target_segments: [] }, 400, mode === "copy" ? /at least one target segment/ : /exactly one target segment, got 0/],
      ["POST", path, { ...good, target_segments: "x" }, 400, /^target_segments: /],
      ["POST", path, { ...good, target_segments: ["x", " "] }, 400, /^target_segments\.1: must not be blank/],
      ["POST", path, { ...good, target_segments: ["s"] }, 400, /the source segment cannot be a target/],
      ["POST", path, { ...good, max_retries: -1 }, 400, /^max_retries: must be 0 or more/],
      ["POST", path, { ...good, max_retries: 1.5 }, 400, /^max_retries: /],
      ["POST", path, { ...good, max_retries: "5" }, 400, /^max_retries: /],
      ["POST", path, { ...good, domain: "" }, 400, /^domain: must not be blank/],
      ["POST", path, { ...good, object_set: 1 }, 400, /^object_set: /],
      ["POST", path, { ...good, extra: 1 }, 400, /^unknown field extra/],
      ["POST", path, "{", 400, /the body is not valid JSON/],
      ["POST", path, "[]", 400, /expected a JSON object/],
      ["POST", path, "", 400, /^authority: is required/],
      ["POST", path, JSON.stringify({ ...good, key: "k".repeat(1 << 20) }), 413, /the body has/],
      ["GET", path, undefined, 405, /expected POST/],
      ["DELETE", path, undefined, 405, /expected POST/],
    ];
  }),
  ["POST", `${MIGRATIONS}/copy`, { ...good, target_segments: ["x", "x"] }, 400, /named twice/],
  ["POST", `${MIGRATIONS}/move`, { ...good, target_segments: ["x", "y"] }, 400, /exactly one target segment, got 2/],
  ["GET", `${MIGRATIONS}/route-migration-1`, undefined, 404, /^route migration task route-migration-1 was not found$/],
  ["GET", `${MIGRATIONS}/none`, undefined, 404, /^route migration task none was not found$/],
  ["GET", `${MIGRATIONS}/%zz`, undefined, 400, /percent sign/],
  ["POST", MIGRATIONS, good, 405, /expected GET/],
  ["PUT", `${MIGRATIONS}/route-migration-1`, good, 405, /expected GET/],
  ["GET", "/v1/other", undefined, 404, /no such route/],
  ["GET", "/docs", undefined, 404, /no such route/],
  ["POST", "/", {}, 404, /no such route/],
];

async function refuse(cluster: Cluster, [method, path, body, status, says]: Refusal): Promise<void> {
  const what = `${method} ${path} ${JSON.stringify(body)?.slice(0, 200)}`;
  const answer = await cluster.ask(method, path, body);
  assert.equal(answer.status, status, `${what}: ${JSON.stringify(answer.body)}`);
  assert.deepEqual(Object.keys(answer.body), ["error"], what);
  assert.match(answer.body.error, says, what);
  assert.equal(answer.headers["content-type"], "application/json", what);
}

void test("every refusal of a route migration gives the reason in one format, and changes nothing", async () => {
  await using cluster = await startCluster();
  for (const refusal of refusals) await refuse(cluster, refusal);
  assert.deepEqual((await cluster.ask("GET", MIGRATIONS)).body, { count: 0, tasks: [] });
  for (const path of ["/healthz", "/livez"]) {
    const answer = await cluster.ask("GET", path);
    assert.deepEqual([answer.status, answer.body], [200, "ok\n"]);
  }
  const page = await (await fetch(cluster.admin.url)).text();
  for (const says of ["<h1>svc store admin</h1>", "POST /v1/route-migrations/copy", "docs/store-admin.md"]) assert.ok(page.includes(says), says);
  const { body } = await cluster.ask("POST", `${MIGRATIONS}/copy`, good);
  assert.equal(body.task_id, "route-migration-1", "no refusal took a number");
});

void test("a task has exactly the fields of its contract, with defaults for omitted ones, and every connection ends with its answer", async () => {
  await using cluster = await startCluster();
  const { status, body } = await cluster.ask("POST", `${MIGRATIONS}/copy`, { ...good, target_segments: ["x", "y"] });
  assert.equal(status, 200);
  const { created_at_ms, updated_at_ms, ...rest } = body;
  assert.ok(Math.abs(created_at_ms - Date.now()) < 60_000 && updated_at_ms >= created_at_ms);
  assert.deepEqual(rest, {
    task_id: "route-migration-1",
    namespace: "default",
    authority: "store-master",
    tenant: "default",
    domain: null,
    object_set: null,
    key: "k",
    mode: "copy",
    source_segment: "s",
    target_segments: ["x", "y"],
    task_executor: "e",
    state: "pending",
    attempts: 0,
    max_retries: 5,
    execution_id: null,
    next_retry_at_ms: null,
    last_error: "",
  });
  const second = await cluster.ask("POST", `${MIGRATIONS}/move`, { ...good, domain: "d", object_set: "o", max_retries: 2 });
  assert.deepEqual([second.body.task_id, second.body.domain, second.body.object_set, second.body.max_retries], ["route-migration-2", "d", "o", 2]);
  const { body: list } = await cluster.ask("GET", MIGRATIONS);
  assert.deepEqual([list.count, list.tasks.map((task: { task_id: string }) => task.task_id)], [2, ["route-migration-1", "route-migration-2"]]);
  assert.equal((await cluster.ask("GET", `${MIGRATIONS}/route-migration-2`)).body.task_id, "route-migration-2");
  const said = await new Promise<string>((resolve, reject) => {
    const { hostname, port } = new URL(cluster.admin.url);
    let text = "";
    const socket = connect(Number(port), hostname, () => socket.write(`GET ${MIGRATIONS} HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n`));
    socket.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
    socket.once("end", () => resolve(text)).once("error", reject);
  });
  assert.match(said, /\r\nConnection: close\r\n/);
});

void test("max_retries is a budget of retries: 2 are three attempts, 0 is one; then the task fails and says so", async () => {
  await using cluster = await startCluster();
  const service = await cluster.addService("holder");
  await cluster.put(service, "k", "value");
  const other = await cluster.addService("other");
  const segments = { source_segment: await service.segment(), target_segments: [await other.segment()] };
  const request = { ...good, ...segments, task_executor: "nobody", max_retries: 2 };
  const { body } = await cluster.ask("POST", `${MIGRATIONS}/copy`, request);
  const waiting = await until(
    "a retry",
    async () => {
      const task = (await cluster.ask("GET", `${MIGRATIONS}/${body.task_id}`)).body;
      return task.state === "retry_wait" ? task : undefined;
    },
    10,
  );
  assert.equal(waiting.attempts, 1);
  assert.ok(waiting.next_retry_at_ms > waiting.updated_at_ms);
  const ended = await until("the end", async () => {
    const task = (await cluster.ask("GET", `${MIGRATIONS}/${body.task_id}`)).body;
    return task.state === "failed" ? task : undefined;
  });
  assert.deepEqual([ended.attempts, ended.next_retry_at_ms], [3, null], "the first attempt and two retries");
  assert.match(ended.last_error, /live runtime nobody not found/);
  const once = await cluster.ask("POST", `${MIGRATIONS}/copy`, { ...request, max_retries: 0 });
  const failed = await until("the end of one without retries", async () => {
    const task = (await cluster.ask("GET", `${MIGRATIONS}/${once.body.task_id}`)).body;
    return task.state === "failed" ? task : undefined;
  });
  assert.deepEqual([failed.attempts, failed.max_retries], [1, 0]);
});

void test("with a token, every path except health requires it", async () => {
  const home = makeHome();
  const file = join(home, "tokens");
  writeFileSync(file, "admin-0123456789abcdef\n");
  chmodSync(file, 0o600);
  await using cluster = await startCluster({ admin: [`--store_admin.access_file=${file}`] });
  for (const headers of [{}, { Authorization: "Bearer wrong-0123456789abcdef" }, { Authorization: "Basic YTpi" }] as Record<string, string>[])
    for (const [method, path] of [
      ["GET", MIGRATIONS],
      ["POST", `${MIGRATIONS}/copy`],
      ["GET", "/v1/none"],
    ] as const) {
      const answer = await cluster.ask(method, path, method === "POST" ? good : undefined, headers);
      assert.deepEqual([answer.status, answer.body], [401, { error: "missing or invalid admin authorization token" }]);
    }
  assert.equal((await cluster.ask("GET", "/healthz")).status, 200);
  const right = { Authorization: "Bearer admin-0123456789abcdef" };
  assert.deepEqual((await cluster.ask("GET", MIGRATIONS, undefined, right)).body, { count: 0, tasks: [] });
  assert.equal((await cluster.ask("POST", `${MIGRATIONS}/copy`, good, right)).status, 200);
  removeHome(home);
});

void test("above the limit of unfinished migrations, further ones are refused with 429 and use no number", async () => {
  await using cluster = await startCluster({
    admin: ["--store_admin.max_migrations=2", "--store_admin.migration_retry_base_delay_ms=60000", "--store_admin.migration_retry_max_delay_ms=60000"],
  });
  const service = await cluster.addService("holder");
  await cluster.put(service, "k", "value");
  const other = await cluster.addService("other");
  const segments = { source_segment: await service.segment(), target_segments: [await other.segment()] };
  const request = { ...good, ...segments, task_executor: "nobody" };
  for (const status of [200, 200, 429, 429]) assert.equal((await cluster.ask("POST", `${MIGRATIONS}/copy`, request)).status, status);
  assert.equal((await cluster.ask("GET", MIGRATIONS)).body.count, 2);
});
