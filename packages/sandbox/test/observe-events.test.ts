// The events of the node: durable, in order, resumable by id, with reported gaps, and cheap for many and for slow readers.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { lifecycleEvent } from "@svc/contract/observe.ts";
import { openStream } from "@svc/harness/event-stream.ts";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { serve } from "@svc/kit/serve.ts";
import { openEventStreams } from "@svc/sandbox/observe/event-streams.ts";
import { openEvents } from "@svc/sandbox/observe/events.ts";

const apiKey = "sdk_0123456789abcdef0123456789abcdef";
const log = openLog("test", "silent");
const keyed = { "x-api-key": apiKey };

async function open(options: { maxEvents?: number; wallMs?: () => number; nowMs?: () => number } = {}) {
  const home = mkdtempSync(join(tmpdir(), "svc-events-"));
  const events = openEvents({ path: join(home, "events.db"), log, ...options });
  const streams = openEventStreams(events, options.nowMs);
  const app = serve({ operations: {}, handlers: {}, apiKey, log, metrics: openMetrics(), raw: (scope) => streams.routes(scope) });
  await app.listen({ host: "127.0.0.1", port: 0 });
  const { port } = app.server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}/events`;
  return {
    events,
    streams,
    port,
    read: (query = "", headers: Record<string, string> = {}) => openStream(url + query, { ...keyed, ...headers }),
    refusal: async (query: string, headers: Record<string, string> = keyed) => {
      const answer = await fetch(url + query, { headers });
      return [answer.status, ((await answer.json()) as { message: string }).message] as const;
    },
    async [Symbol.asyncDispose]() {
      streams.end();
      await app.close();
      events.close();
      rmSync(home, { recursive: true });
    },
  };
}

void test("a reader gets all new events, in the form of the contract", async () => {
  await using node = await open();
  node.events.record("sandbox.created", { sandboxID: "i1", templateID: "t1" });
  await using stream = await node.read();
  node.events.record("sandbox.ended", { sandboxID: "i1", details: { reason: "timeout" } });
  const [event] = await stream.take(1);
  assert.deepEqual([event?.event, event?.id], ["sandbox.ended", 2]);
  const data = lifecycleEvent.parse(JSON.parse(event?.data ?? ""));
  assert.deepEqual([data.id, data.type, data.sandboxID, data.details], [2, "sandbox.ended", "i1", { reason: "timeout" }]);
});

void test("a reader that resumes with its last id misses nothing and gets nothing twice, even before its first event", async () => {
  await using node = await open();
  for (let count = 0; count < 1000; count++) node.events.record("sandbox.created", { sandboxID: `i${count}` });
  const first = await node.read("?after=0");
  const seen = (await first.take(600)).map(({ id }) => id);
  await first[Symbol.asyncDispose]();
  await using second = await node.read("?after=0", { "last-event-id": String(seen.at(-1)) });
  seen.push(...(await second.take(400)).map(({ id }) => id));
  assert.deepEqual(
    seen,
    Array.from({ length: 1000 }, (_, index) => index + 1),
  );

  const quiet = await node.read();
  while (quiet.lastEventID() === "") await Promise.race([quiet.next(), sleep(50)]);
  await quiet[Symbol.asyncDispose]();
  node.events.record("sandbox.paused", { sandboxID: "i1" });
  await using back = await node.read("", { "last-event-id": quiet.lastEventID() });
  assert.deepEqual(
    (await back.take(1)).map(({ id }) => id),
    [1001],
  );
});

void test("recorded events survive kill -9, and ids continue to rise", async () => {
  const home = mkdtempSync(join(tmpdir(), "svc-events-"));
  let lastID = "0";
  const received: number[] = [];
  let acknowledged = 0;
  for (let round = 0; round < 4; round++) {
    const child = spawn(process.execPath, [fileURLToPath(new URL("./observe-events-server.ts", import.meta.url)), home, apiKey], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const port = await new Promise<number>((resolve) => {
      createInterface(child.stdout).on("line", (line) => {
        if (line.startsWith("port ")) resolve(Number(line.slice(5)));
        else acknowledged = Math.max(acknowledged, Number(line));
      });
    });
    await using stream = await openStream(`http://127.0.0.1:${port}/events`, { ...keyed, "last-event-id": lastID });
    for (const event of await stream.take(500)) {
      assert.equal(event.event, "sandbox.paused");
      received.push(event.id);
    }
    const ended = once(child, "close");
    child.kill("SIGKILL");
    for (let event = await stream.next(); event !== undefined; event = await stream.next()) received.push(event.id);
    lastID = String(received.at(-1));
    await ended;
  }
  const events = openEvents({ path: join(home, "events.db"), log });
  assert.ok(events.newest >= acknowledged, `${acknowledged} was acknowledged, ${events.newest} is the newest on disk`);
  assert.deepEqual(
    received,
    Array.from({ length: received.length }, (_, index) => index + 1),
  );
  events.record("sandbox.created", {});
  assert.ok(events.newest > acknowledged);
  events.close();
  rmSync(home, { recursive: true });
});

void test("a reader gets a gap event if its id is older than the kept events, or was never assigned", async () => {
  await using node = await open({ maxEvents: 1000 });
  for (let count = 0; count < 3000; count++) node.events.record("sandbox.created", {});
  node.events.prune();
  for (const asked of [7, 99_999]) {
    await using stream = await node.read(`?after=${asked}`);
    const [gap, next] = await stream.take(2);
    assert.deepEqual([gap?.event, JSON.parse(gap?.data ?? "")], ["gap", { asked, oldest: 2001, newest: 3000 }]);
    assert.equal(next?.id, 2001);
    await using again = await node.read("", { "last-event-id": String(gap?.id) });
    assert.deepEqual(
      (await again.take(1)).map(({ id, event }) => [id, event]),
      [[2001, "sandbox.created"]],
      "a gap is reported once",
    );
  }
});

void test("events older than a day are dropped, and an id is never assigned twice", async () => {
  let now = Date.now();
  await using node = await open({ wallMs: () => now });
  node.events.record("sandbox.created", {});
  now += 25 * 3_600_000;
  node.events.prune();
  assert.deepEqual([node.events.oldest, node.events.newest, node.events.read(0, 10)], [2, 1, []]);
  node.events.record("sandbox.created", {});
  assert.deepEqual(
    node.events.read(0, 10).map(({ id }) => id),
    [2],
  );
});

void test("a reader can filter by sandbox and type, and an unknown type is refused with the list of types", async () => {
  await using node = await open();
  for (let count = 0; count < 600; count++) node.events.record(count % 2 === 0 ? "sandbox.created" : "sandbox.ended", { sandboxID: `i${count % 3}` });
  await using one = await node.read("?after=0&sandboxID=i1&types=sandbox.ended,template.built");
  const found = (await one.take(100)).map(({ data }) => lifecycleEvent.parse(JSON.parse(data)));
  assert.ok(found.every(({ sandboxID, type }) => sandboxID === "i1" && type === "sandbox.ended"));
  assert.equal(new Set(found.map(({ id }) => id)).size, 100);
  assert.match((await node.refusal("?types=sandbox.exploded"))[1], /'sandbox.exploded' is not a type of event; expected one of sandbox.created/);
  assert.equal((await node.refusal("?after=x"))[0], 400);
  assert.equal((await node.refusal("", {}))[0], 401);
});

void test("a reader that stops reading keeps no events in memory, and is disconnected with `overflow`", { timeout: 120_000 }, async (context) => {
  context.mock.timers.enable({ apis: ["setInterval"] });
  let now = 0;
  await using node = await open({ nowMs: () => now });
  const socket = connect({ host: "127.0.0.1", port: node.port });
  socket.pause();
  socket.write(`GET /events HTTP/1.1\r\nhost: x\r\nx-api-key: ${apiKey}\r\n\r\n`);
  while (node.streams.readers === 0) await sleep(10);
  const before = process.memoryUsage().rss;
  for (let burst = 0; burst < 60; burst++) {
    for (let count = 0; count < 1000; count++) node.events.record("sandbox.created", { sandboxID: "i1", details: { filler: "x".repeat(200) } });
    await sleep(1);
  }
  assert.ok(process.memoryUsage().rss - before < 150 * 1024 * 1024);
  now += 31_000;
  context.mock.timers.tick(15_000);
  assert.equal(node.streams.readers, 0);
  let text = "";
  socket.on("data", (chunk: Buffer) => void (text = (text + chunk.toString()).slice(-400)));
  socket.resume();
  while (!/event: overflow\ndata: \{"last":\d+\}/.test(text)) await sleep(10);
  socket.destroy();
});

void test("a silent stream sends a heartbeat with its position every fifteen seconds", async (context) => {
  context.mock.timers.enable({ apis: ["setInterval"] });
  await using node = await open();
  await using stream = await node.read("?types=template.built");
  while (node.streams.readers === 0) await sleep(10);
  for (let count = 0; count < 9; count++) node.events.record("sandbox.created", {});
  await sleep(50);
  context.mock.timers.tick(15_000);
  void stream.next();
  while (stream.lastEventID() !== "9") await sleep(10);
});

void test("the streams end when the node stops", async () => {
  await using node = await open();
  await using stream = await node.read();
  while (node.streams.readers === 0) await sleep(10);
  node.streams.end();
  assert.equal(await stream.next(), undefined);
  assert.equal((await node.refusal(""))[0], 503);
});

void test("five hundred readers at once get every event", async () => {
  await using node = await open();
  const streams = await Promise.all(Array.from({ length: 500 }, () => node.read()));
  while (node.streams.readers < 500) await sleep(10);
  for (let count = 0; count < 20; count++) node.events.record("sandbox.created", { sandboxID: "i1" });
  for (const stream of streams) assert.deepEqual((await stream.take(20)).map(({ id }) => id).at(-1), 20);
  for (const stream of streams) await stream[Symbol.asyncDispose]();
});

void test("a tenant gets the events of its own sandboxes alone, and none that a version without tenants recorded", () => {
  const home = mkdtempSync(join(tmpdir(), "svc-events-"));
  const path = join(home, "events.db");
  const facts = { templateID: "base", executionID: "e1", metadata: { tenant: "acme" }, cpuCount: 1, memoryMB: 512, startedAtMs: 1 };
  // The file as that version left it: its tables, without the index by tenant.
  const earlier = openEvents({ path, log });
  earlier.record("sandbox.created", { sandboxID: "i0", facts });
  earlier.close();
  const file = new DatabaseSync(path);
  file.exec("DROP INDEX sandbox_facts_tenant");
  file.close();
  const events = openEvents({ path, log });
  for (const [sandboxID, tenant] of [
    ["i1", "acme"],
    ["i2", "globex"],
    ["i3", undefined],
    ["i4", "acme"],
  ] as const)
    events.record("sandbox.created", { sandboxID, facts: { ...facts, tenant } });
  const listed = (tenant: string | undefined, sandboxID?: string, limit = 10) =>
    events.list({ types: ["sandbox.created"], sandboxID, tenant, offset: 0, limit, ascending: true }).map((event) => event.sandboxID);
  assert.deepEqual(listed("acme"), ["i1", "i4"]);
  assert.deepEqual(listed("acme", undefined, 1), ["i1"]);
  assert.deepEqual(listed("acme", "i4"), ["i4"]);
  assert.deepEqual(listed("acme", "i2"), []);
  assert.deepEqual(listed("initech"), []);
  assert.deepEqual(listed(undefined), ["i0", "i1", "i2", "i3", "i4"]);
  events.close();
  rmSync(home, { recursive: true });
});

void test("a damaged file of events is quarantined, and new ids are above all that a reader has seen", () => {
  const home = mkdtempSync(join(tmpdir(), "svc-events-"));
  try {
    const path = join(home, "events.db");
    const before = openEvents({ path, log });
    before.record("sandbox.created", { sandboxID: "a" });
    const seen = before.newest;
    before.close();
    writeFileSync(path, Buffer.alloc(8192, 0x5a));
    const after = openEvents({ path, log });
    assert.ok(existsSync(`${path}.damaged`));
    assert.ok(after.oldest > seen, "a reader that resumes gets a gap event");
    after.record("sandbox.created", { sandboxID: "b" });
    assert.deepEqual(
      after.read(after.oldest - 1, 10).map(({ sandboxID }) => sandboxID),
      ["b"],
    );
    after.close();
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
});
