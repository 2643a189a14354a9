// The router's bounds: bodies, the queue, keys, draining, wrong settings and its stop.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { chat, metric, openRouter, post, startEngine, until } from "./stack.ts";

const MAIN = fileURLToPath(new URL("../src/main.ts", import.meta.url));

void test("more requests than engines may have wait in the queue, and beyond its length get 429 with Retry-After", async () => {
  await using a = await startEngine("a");
  await using router = await openRouter([a], ["--router.max_in_flight=2", "--router.queue=3"]);
  await a.fault("hold");
  const asking = Array.from({ length: 5 }, (_, at) => post(router.url, "/v1/chat/completions", chat(`prompt ${at}`)));
  await until(
    "three wait",
    () => metric(router.url, "svc_router_queued_requests"),
    (seen) => seen === 3,
  );
  const refused = await post(router.url, "/v1/chat/completions", chat("one more"));
  assert.deepEqual([refused.status, refused.json.error.code, refused.headers.get("retry-after")], [429, "queue_full", "1"]);
  assert.equal((await a.seen()).waiting, 2);
  await a.fault("none");
  for (const { status } of await Promise.all(asking)) assert.equal(status, 200);
});

void test("a request that waits too long for an engine with room gets 429, and one whose client left frees its slot", async () => {
  await using a = await startEngine("a");
  await using router = await openRouter([a], ["--router.max_in_flight=1", "--router.queue_timeout_seconds=1"]);
  await a.fault("hold");
  const leaving = new AbortController();
  const first = fetch(`${router.url}/v1/chat/completions`, { method: "POST", body: JSON.stringify(chat("first")), signal: leaving.signal });
  first.catch(() => {});
  await until(
    "the engine has it",
    () => a.seen(),
    ({ waiting }) => waiting === 1,
  );
  const second = await post(router.url, "/v1/chat/completions", chat("second"));
  assert.deepEqual([second.status, second.json.error.code], [429, "queue_timeout"]);
  leaving.abort();
  await a.fault("none");
  await until(
    "the slot is free",
    () => post(router.url, "/v1/chat/completions", chat("third")),
    ({ status }) => status === 200,
  );
});

void test("a request whose x-request-timeout passes in the queue, on the engine or in its stream ends with deadline_exceeded, and the engine is not blamed", async () => {
  await using a = await startEngine("a", ["--token-ms", "50"]);
  await using router = await openRouter([a], ["--router.max_in_flight=1", "--router.circuit_failures=1"]);
  await a.fault("hold");
  const held = post(router.url, "/v1/chat/completions", chat("held"), { "x-request-timeout": "3600" });
  await until(
    "the engine has it",
    () => a.seen(),
    ({ waiting }) => waiting === 1,
  );
  const left = Number((await a.seen()).headers["x-request-timeout"]);
  assert.ok(left > 3000 && left <= 3600, `the engine gets the seconds that are left: ${left}`);
  const queued = await post(router.url, "/v1/chat/completions", chat("queued"), { "x-request-timeout": "0.2" });
  assert.deepEqual([queued.status, queued.json.error.code], [504, "deadline_exceeded"]);
  await a.fault("none");
  assert.equal((await held).status, 200);
  await a.fault("never");
  const never = await post(router.url, "/v1/chat/completions", chat("never"), { "x-request-timeout": "0.5" });
  assert.deepEqual([never.status, never.json.error.code], [504, "deadline_exceeded"]);
  await until(
    "the engine was told",
    () => a.seen(),
    ({ cancelled }) => cancelled === 1,
  );
  await a.fault("none");
  const stream = await post(router.url, "/v1/chat/completions", chat("stream", { stream: true, max_tokens: 10_000 }), { "x-request-timeout": "1" });
  assert.equal(stream.status, 200);
  assert.match(stream.text, /data: \{"type":"error".*"code":"deadline_exceeded".*\n\n$/);
  assert.equal((await post(router.url, "/v1/chat/completions", chat("next"))).status, 200, "the engine's circuit stayed closed");
  for (const wrong of ["soon", "0", "-1", "1e9"]) {
    const answer = await post(router.url, "/v1/chat/completions", chat("x"), { "x-request-timeout": wrong });
    assert.deepEqual([answer.status, answer.json.error.code], [400, "invalid_request"], wrong);
  }
});

void test("bodies above the bound get 413 whether or not they declare their length, and nonsense gets 400", async () => {
  await using a = await startEngine("a");
  await using router = await openRouter([a], ["--router.max_body_bytes=10000"]);
  const large = await post(router.url, "/v1/chat/completions", chat("x".repeat(20_000)));
  assert.deepEqual([large.status, large.json.error.code], [413, "body_too_large"]);
  const status = await new Promise<number>((resolve, reject) => {
    const asking = request(`${router.url}/v1/chat/completions`, { method: "POST" }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    asking.on("error", reject);
    for (let at = 0; at < 4; at++) asking.write("x".repeat(5_000));
    asking.end();
  });
  assert.equal(status, 413);
  const nonsense = [
    ["{", "invalid_json"],
    ["[]", "invalid_request"],
    ["null", "invalid_request"],
    ["{}", "invalid_request"],
    ['{"model": 7, "messages": []}', "invalid_request"],
    [`{"model": "demo", "messages": ${"[".repeat(4_000)}${"]".repeat(4_000)}}`, "invalid_request"],
  ] as const;
  for (const [body, code] of nonsense) {
    const answer = await post(router.url, "/v1/chat/completions", body);
    assert.deepEqual([answer.status, answer.json.error.code], [400, code], body);
  }
  // A conversation whose tokens are known makes nothing else of the body valid.
  const known = JSON.stringify(chat("known"));
  assert.equal((await post(router.url, "/v1/chat/completions", known)).status, 200);
  for (const rest of [',"temperature":tru}', ',"tools":[tru]}', ",}", ',"model":""}', ',"stop":[1,]}', "} x"]) {
    const answer = await post(router.url, "/v1/chat/completions", known.slice(0, -1) + rest);
    assert.equal(answer.status, 400, rest);
    assert.equal(answer.headers.get("x-svc-instance"), null, rest);
  }
  // A body that is only odd is the engine's to judge.
  for (const messages of [[], null, 7, [null], [{ content: [{}] }]]) {
    const answer = await post(router.url, "/v1/chat/completions", { model: "demo", messages });
    assert.ok([200, 400].includes(answer.status), answer.text);
    assert.equal(answer.headers.get("x-svc-instance"), "a");
  }
  assert.equal(await metric(router.url, "svc_router_held_bytes"), 0);
});

void test("a stream under way holds no request body", async () => {
  await using a = await startEngine("a", ["--token-ms", "50"]);
  await using router = await openRouter([a]);
  const leaving = new AbortController();
  const body = JSON.stringify(chat("x".repeat(100_000), { stream: true, max_tokens: 10_000 }));
  await fetch(`${router.url}/v1/chat/completions`, { method: "POST", body, signal: leaving.signal });
  assert.equal(await metric(router.url, 'svc_router_engine_in_flight{engine="a"}'), 1);
  assert.equal(await metric(router.url, "svc_router_held_bytes"), 0);
  leaving.abort();
});

void test("a drained engine ends what it has and gets nothing new, until it is undrained", async () => {
  await using a = await startEngine("a");
  await using b = await startEngine("b");
  await using router = await openRouter([a, b]);
  await a.fault("hold");
  const held = post(router.url, "/v1/chat/completions", chat("held"), { "x-svc-engine": "a" });
  await until(
    "a has it",
    () => a.seen(),
    ({ waiting }) => waiting === 1,
  );
  const drained = await post(router.url, "/admin/engines/a/drain", {});
  assert.equal((drained.json as unknown as { draining: boolean }).draining, true);
  for (let at = 0; at < 10; at++) assert.equal((await post(router.url, "/v1/chat/completions", chat(`new ${at}`))).headers.get("x-svc-instance"), "b");
  const pinned = await post(router.url, "/v1/chat/completions", chat("x"), { "x-svc-engine": "a" });
  assert.deepEqual([pinned.status, pinned.json.error.code], [503, "engine_unavailable"]);
  await a.fault("none");
  assert.equal((await held).status, 200);
  await post(router.url, "/admin/engines/a/undrain", {});
  assert.equal((await post(router.url, "/v1/chat/completions", chat("x"), { "x-svc-engine": "a" })).status, 200);
  assert.equal((await post(router.url, "/admin/engines/nobody/drain", {})).json.error.code, "engine_not_found");
});

void test("the router's key is needed and does not reach engines, which get their own", async () => {
  const home = makeHome();
  try {
    await using a = await startEngine("a");
    const file = join(home, "engines.json");
    writeFileSync(file, JSON.stringify([{ name: "a", url: a.url, api_key: "engine-key" }]));
    await using router = await openRouter([], [`--engines=${file}`, "--router.api_key=router-key", "--router.admin_key=admin-key"]);
    const without = await post(router.url, "/v1/chat/completions", chat("x"));
    assert.deepEqual([without.status, without.json.error.code, without.json.error.type], [401, "unauthorized", "authentication_error"]);
    const { status } = await post(router.url, "/v1/chat/completions", chat("x"), { authorization: "Bearer router-key" });
    assert.equal(status, 200);
    assert.equal((await a.seen()).headers["authorization"], "Bearer engine-key");
    assert.equal((await fetch(`${router.url}/admin/engines`)).status, 401);
    assert.equal((await fetch(`${router.url}/admin/engines`, { headers: { "x-api-key": "admin-key" } })).status, 200);
  } finally {
    removeHome(home);
  }
});

void test("a session stays on its engine where engines are equal", async () => {
  await using a = await startEngine("a");
  await using b = await startEngine("b");
  await using router = await openRouter([a, b], ["--router.speculative_seconds=0"]);
  for (const [name, headers, more] of [
    ["by header", { "x-session-id": "one" }, {}],
    ["by user", {}, { user: "two" }],
  ] as const) {
    const engines = new Set<string | null>();
    for (let turn = 0; turn < 12; turn++)
      engines.add((await post(router.url, "/v1/chat/completions", chat("x", more), { ...headers })).headers.get("x-svc-instance"));
    assert.equal(engines.size, 1, name);
  }
});

void test("wrong settings end the start with a sentence that says what is wrong", async () => {
  const cases = [
    [[], /there are no engines/],
    [["--engine", "a"], /expected NAME=http:\/\/HOST:PORT, got "a"/],
    [["--engine", "a=ftp://x"], /url: .*expected http:\/\/HOST:PORT/],
    [["--engine", "a=http://h:1", "--engine", "a=http://h:2"], /the engine a is given twice/],
    [["--engine", "a=http://h:1", "--engine", "b=http://h:1/"], /two engines have the URL/],
    [["--engines", "/nowhere.json"], /\/nowhere.json cannot be read/],
    [["--engine", "a=http://h:1", "--indexer", "h:1"], /router.indexer .*expected http:\/\/HOST:PORT/],
    [["--engine", "a=http://h:1", "--router.queue", "many"], /--router.queue: expected a number/],
  ] as const;
  for (const [flags, pattern] of cases) {
    const { code, said } = await new Promise<{ code: number | null; said: string }>((resolve) => {
      const child = spawn(process.execPath, [MAIN, "--listen=127.0.0.1:0", ...flags], { stdio: ["ignore", "ignore", "pipe"] });
      let text = "";
      child.stderr.on("data", (chunk: Buffer) => void (text += chunk.toString()));
      child.once("close", (ended) => resolve({ code: ended, said: text }));
    });
    assert.ok(code === 1 || code === 2, `${flags.join(" ")}: ${code}`);
    assert.match(said, pattern);
  }
});

void test("a stop lets answers under way end before the router does", async () => {
  await using a = await startEngine("a");
  await using router = await openRouter([a]);
  await a.fault("hold");
  const held = post(router.url, "/v1/chat/completions", chat("held"));
  await until(
    "the engine has it",
    () => a.seen(),
    ({ waiting }) => waiting === 1,
  );
  const stopped = router.kill("SIGTERM");
  await until(
    "it is stopping",
    () => /"msg":"stopping"/.test(router.log()),
    (seen) => seen,
  );
  await a.fault("none");
  assert.equal((await held).status, 200);
  await stopped;
  assert.match(router.log(), /"msg":"stopped"/);
});
