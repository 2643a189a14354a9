// Tests the bounds of all input: bodies, registrations, messages, and connections that make no progress.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { test } from "node:test";
import { freePorts } from "@svc/harness/ports.ts";
import { Packr } from "msgpackr";
import { limitsOf } from "../src/stream/zmq.ts";
import { startIndexer, type TestIndexer } from "./indexer.ts";
import { needsPublishers, startPublisher } from "./publisher.ts";

const MIB = 1024 * 1024;
const scope = { model: "m", block_size: 16 };
const record = { type: "vLLM", modelname: "m", block_size: 16, dp_rank: 0 };

function peakBytes(indexer: TestIndexer): number {
  return 1024 * Number(/^VmHWM:\s+(\d+) kB/m.exec(readFileSync(`/proc/${indexer.pid}/status`, "utf8"))?.[1]);
}

void test("a long body with one wrong token, or with only wrong ones, is refused at the first one and costs no more memory than a valid one", async () => {
  await using indexer = await startIndexer(["--indexer.memory_budget_mb=64"]);
  const tokens = "1,".repeat(7_000_000);
  const last = await indexer.post("/query", `{"model":"m","block_size":16,"token_ids":[${tokens}-1]}`);
  assert.equal(last.status, 400);
  assert.deepEqual(last.body, {
    error: "token_ids[7000000]: expected a whole number from 0 to 4294967295, got -1",
    reason: "out_of_range",
    field: "token_ids",
    index: 7_000_000,
  });
  const all = await indexer.post("/query_by_hash", `{"model":"m","block_size":16,"seq_hashes":[${"-1,".repeat(5_000_000)}-1]}`);
  assert.deepEqual([all.status, (all.body as { index: number }).index], [400, 0]);
  const deep = await indexer.post("/query", `{"model":"m","x":${"[".repeat(7_000_000)}`);
  assert.equal(deep.status, 400);
  const wide = await indexer.post("/query", `{"model":"m","block_size":16,"token_ids":[1],"x":"${"y".repeat(MIB)}"}`);
  assert.equal(wide.status, 413);
  const batch = await indexer.post(
    "/query_batch",
    `{"queries":[{"model":"m","block_size":16,"token_ids":[${tokens}-1]},{"model":"m","block_size":16,"token_ids":[1]}]}`,
  );
  assert.equal(batch.status, 200);
  assert.deepEqual((batch.body as { results: { index?: number }[] }).results[0]?.index, 7_000_000);
  const big = await indexer.post("/register", `{"endpoint":"${"x".repeat(MIB)}"}`);
  assert.equal(big.status, 413);
  assert.ok(peakBytes(indexer) < 900 * MIB, `${peakBytes(indexer) / MIB} MiB`);
});

void test("msgpack queries are read like JSON ones, and refused at the first wrong element", async () => {
  await using indexer = await startIndexer();
  const packr = new Packr({ useRecords: false });
  const ask = async (path: string, value: unknown) => {
    const response = await fetch(indexer.url + path, {
      method: "POST",
      body: packr.pack(value),
      headers: { "content-type": "application/msgpack", accept: "application/json" },
    });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  };
  assert.deepEqual((await ask("/query", { ...scope, token_ids: [1, 2, 3], instance_id: "e" })).body, {
    default: { e: { longest_matched: 0, GPU: 0, CPU: 0, DISK: 0, DP: {} } },
  });
  const wrong = await ask("/query", { ...scope, token_ids: [1, 2, "x"] });
  assert.deepEqual([wrong.status, wrong.body["reason"], wrong.body["index"]], [400, "invalid_type", 2]);
  const missing = await ask("/query", { ...scope });
  assert.deepEqual([missing.status, missing.body["reason"], missing.body["field"]], [400, "missing", "token_ids"]);
  const batch = await ask("/query_batch", {
    queries: [
      { ...scope, seq_hashes: [2n ** 64n - 1n] },
      { ...scope, seq_hashes: [-1] },
    ],
  });
  assert.deepEqual((batch.body["results"] as { index?: number }[])[1]?.index, 0);
});

void test("four hundred publishers are registered, and one that cannot be registered leaves nothing behind", async () => {
  await using indexer = await startIndexer();
  for (let n = 0; n < 400; n++) await indexer.register({ ...record, endpoint: `tcp://127.0.0.1:${1 + (n % 9)}`, instance_id: `e${n}` });
  assert.equal((await indexer.services()).length, 400);
  const [port = 0, other = 0] = await freePorts(2);
  await indexer.register({ ...record, endpoint: `tcp://*:${port}`, instance_id: "one" });
  for (let attempt = 0; attempt < 2; attempt++) {
    // Topics tell engines at one port apart by instance and model, and not by rank.
    const taken = await indexer.post("/register", { ...record, endpoint: `tcp://*:${port}`, instance_id: "one", dp_rank: 1 });
    assert.equal(taken.status, 400);
    assert.match((taken.body as { error: string }).error, /cannot be listened on/);
  }
  await indexer.register({ ...record, endpoint: `tcp://*:${other}`, instance_id: "one", dp_rank: 1 });
});

void test("a publisher beyond the limit of open files is refused with that limit, and all others stay", async () => {
  assert.equal(limitsOf(1 << 20).publishers, 4096);
  const { publishers } = limitsOf(420);
  await using indexer = await startIndexer([], { launcher: ["prlimit", "--nofile=420:420"] });
  const statuses: number[] = [];
  for (let n = 0; n < publishers + 5; n++)
    statuses.push((await indexer.post("/register", { ...record, endpoint: "tcp://127.0.0.1:9", instance_id: `e${n}` })).status);
  assert.deepEqual(statuses, [...Array(publishers).fill(200), ...Array(5).fill(400)]);
  const refused = await indexer.post("/register", { ...record, endpoint: "tcp://127.0.0.1:9", instance_id: "late" });
  assert.match((refused.body as { error: string }).error, /limit of 420 open files/);
  assert.equal((await indexer.services()).length, publishers);
  assert.equal((await indexer.post("/unregister", { instance_id: "e0", dp_rank: 0 })).status, 200);
  assert.equal((await indexer.post("/register", { ...record, endpoint: "tcp://127.0.0.1:9", instance_id: "late" })).status, 200);
});

void test("the doctor names a message above the limit, and the publisher's other batches are taken in", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using publisher = await startPublisher({ rank: 0 });
  await indexer.register({ ...record, endpoint: publisher.endpoint, instance_id: "e" });
  const event = (n: number) => ({ events: [{ kind: "stored", block_hashes: [n], parent_block_hash: null, token_ids: Array(16).fill(n), block_size: 16 }] });
  await indexer.until(
    "the first batch",
    async () => {
      await publisher.send(event(1));
      return indexer.services();
    },
    ([one]) => one?.freshness.last_sequence !== null,
  );
  await publisher.send({ zeros: 70 * MIB });
  await indexer.until(
    "the doctor names it",
    async () => {
      await publisher.send(event(2));
      return (await indexer.services())[0]?.doctor.join("\n") ?? "";
    },
    (says) => /were ended here \d+ times, the last one because the peer sent a message of \d+ bytes or more; the maximum is 67108864/.test(says),
  );
  await indexer.until(
    "later batches",
    async () => {
      await publisher.send(event(3));
      return (await indexer.query({ ...scope, token_ids: Array(16).fill(3) }))["e"]?.longest_matched;
    },
    (tokens) => tokens === 16,
  );
});

void test("a head or a body that does not become complete is answered 408, and others are served meanwhile", async () => {
  await using indexer = await startIndexer();
  const port = Number(new URL(indexer.url).port);
  const slow = connect(port, "127.0.0.1");
  let said = "";
  slow.setEncoding("latin1").on("data", (text) => {
    said += text;
  });
  const ended = new Promise((resolve) => slow.once("close", resolve));
  slow.write("POST /query HTTP/1.1\r\nHost: x\r\nContent-Le");
  const trickle = setInterval(() => slow.write("n"), 500);
  slow.on("error", () => {});
  assert.deepEqual(((await indexer.get("/health")) as { status: string }).status, "ok");
  await ended;
  clearInterval(trickle);
  assert.match(said, /^HTTP\/1.1 408 /);
});

void test("incomplete bodies are bounded together: the slowest is refused with 503, and a client at ordinary speed is served", async () => {
  await using indexer = await startIndexer(["--indexer.memory_budget_mb=64"]);
  const port = Number(new URL(indexer.url).port);
  const part = Buffer.alloc(15 * MIB, 0x31);
  let refused = 0;
  const slow = await Promise.all(
    Array.from({ length: 16 }, async () => {
      const socket = connect(port, "127.0.0.1");
      socket
        .on("error", () => {})
        .on("data", (bytes) => {
          if (bytes.toString("latin1").startsWith("HTTP/1.1 503")) refused++;
        });
      socket.write(`POST /query HTTP/1.1\r\nHost: x\r\nContent-Length: ${16 * MIB}\r\n\r\n`);
      await new Promise((resolve) => socket.write(part, resolve));
      return socket;
    }),
  );
  await indexer.until(
    "some gave way",
    async () => refused,
    (count) => count >= 4,
  );
  const body = `{"model":"m","block_size":16,"instance_id":"e","token_ids":[${"1,".repeat(2_000_000)}1]}`;
  assert.equal((await indexer.post("/query", body)).status, 200);
  assert.ok(peakBytes(indexer) < 700 * MIB, `${peakBytes(indexer) / MIB} MiB`);
  for (const socket of slow) socket.destroy();
});

void test("a client that sends requests without reading gets no more answers than its connection holds", async () => {
  await using indexer = await startIndexer(["--indexer.memory_budget_mb=64"]);
  for (let n = 0; n < 100; n++) await indexer.register({ ...record, endpoint: "tcp://127.0.0.1:9", instance_id: `e${n}` });
  const socket = connect(Number(new URL(indexer.url).port), "127.0.0.1");
  socket.on("error", () => {});
  socket.pause();
  const body = '{"model":"m","block_size":16,"token_ids":[]}';
  const many = `POST /query HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`.repeat(500);
  const before = peakBytes(indexer);
  for (let n = 0; n < 400; n++) socket.write(many);
  for (let n = 0; n < 50; n++) await indexer.query({ ...scope, token_ids: [] });
  assert.ok(peakBytes(indexer) - before < 200 * MIB, `${(peakBytes(indexer) - before) / MIB} MiB`);
  socket.destroy();
});
