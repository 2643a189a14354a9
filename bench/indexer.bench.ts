// The cache indexer: its native core alone, then the whole server: CPU per request, CPU per block taken in, restart.
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { Agent, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { openHasher } from "@svc/contract/index-client.ts";
import { Packr } from "msgpackr";
import { Publisher } from "zeromq";
import { type Row, report } from "./report.ts";

const MAIN = fileURLToPath(new URL("../packages/indexer/src/main.ts", import.meta.url));
const CORE = process.env["SVC_INDEXER_CORE_BENCH"] ?? fileURLToPath(new URL("../packages/indexer/native/build/core_bench", import.meta.url));
const INSTANCES = 64;
const BLOCK_SIZE = 16;
const PROMPT_TOKENS = 32_768;
const ROUNDS = 400;
const packr = new Packr({ useRecords: false });

type Core = {
  blocks: number;
  stored_new_per_second: number;
  stored_all_per_second: number;
  removed_per_second: number;
  bytes_per_block: number;
  hit_512_blocks_64_instances_us: { p50: number; p99: number };
  miss_us: { p50: number };
};

const core = JSON.parse(execFileSync(CORE, { encoding: "utf8" })) as Core;
const home = mkdtempSync(join(tmpdir(), "svc-bench-"));
const agent = new Agent({ keepAlive: true, maxSockets: 1 });
const rows: Row[] = [
  {
    what: "core: block entries stored",
    value: core.stored_all_per_second / 1e6,
    unit: "M/s",
    goal: { atLeast: 25 },
    note: `${core.blocks} blocks, ${INSTANCES} publishers`,
  },
  { what: "core: block entries stored, none known before", value: core.stored_new_per_second / 1e6, unit: "M/s" },
  { what: "core: block entries removed", value: core.removed_per_second / 1e6, unit: "M/s", goal: { atLeast: 50 } },
  { what: "core: bytes per unique block", value: core.bytes_per_block, unit: "B", goal: { atMost: 24 } },
  { what: "core: full hit, 512 blocks, 64 instances, p50", value: core.hit_512_blocks_64_instances_us.p50, unit: "us", goal: { atMost: 2.5 } },
  { what: "core: miss, p50", value: core.miss_us.p50, unit: "us", goal: { atMost: 0.5 } },
];

const server = spawn(
  process.execPath,
  ["--disable-warning=ExperimentalWarning", MAIN, "--listen=127.0.0.1:0", `--home=${home}`, "--indexer.snapshot_interval_seconds=0", "--log-level=error"],
  {
    stdio: ["ignore", "pipe", "inherit"],
  },
);
process.once("exit", () => server.kill("SIGKILL"));
const url = await new Promise<URL>((resolve) => {
  let out = "";
  server.stdout.on("data", (chunk: Buffer) => {
    const found = /ready at (http:\S+)/.exec((out += chunk.toString()))?.[1];
    if (found !== undefined) resolve(new URL(found.replace("localhost", "127.0.0.1")));
  });
});

function ask(path: string, body: Buffer, type: string): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        agent,
        host: url.hostname,
        port: url.port,
        path,
        method: body.length === 0 ? "GET" : "POST",
        headers: { "content-type": type, "content-length": body.length },
      },
      (answer) => {
        const chunks: Buffer[] = [];
        answer.on("data", (chunk: Buffer) => chunks.push(chunk));
        answer.on("end", () => resolve(Buffer.concat(chunks)));
      },
    );
    sent.once("error", reject);
    sent.end(body);
  });
}
/** User and system time of the server's process, all threads. */
async function cpuSeconds(): Promise<number> {
  const text = (await ask("/metrics", Buffer.alloc(0), "")).toString();
  return Number(/^process_cpu_seconds_total (\S+)/m.exec(text)?.[1]);
}

// Intake: real ZMQ, batches of engine events; the last publisher's batches are counted in CPU time.
const hash = await openHasher();
const prompt = Uint32Array.from({ length: PROMPT_TOKENS }, (_, i) => (i * 7919) % 150_000);
const hashes = hash(prompt, BLOCK_SIZE);
const publishers: Publisher[] = [];
for (let i = 0; i < INSTANCES; i++) {
  const publisher = new Publisher({ linger: 0, sendHighWaterMark: 0 });
  await publisher.bind("tcp://127.0.0.1:*");
  publishers.push(publisher);
  const record = { endpoint: publisher.lastEndpoint, type: "vLLM", modelname: "m", instance_id: `engine-${i}`, block_size: BLOCK_SIZE, dp_rank: 0 };
  await ask("/register", Buffer.from(JSON.stringify(record)), "application/json");
}
async function until(holds: (text: string) => boolean): Promise<void> {
  while (!holds((await ask("/metrics", Buffer.alloc(0), "")).toString())) await delay(200);
}
await until((text) => /svc_indexer_streams_disconnected 0/.test(text));

const sequences = new Array<bigint>(INSTANCES).fill(0n);
async function publish(who: number, events: unknown[]): Promise<void> {
  const frame = Buffer.alloc(8);
  const sequence = sequences[who] ?? 0n;
  frame.writeBigUInt64BE(sequence);
  sequences[who] = sequence + 1n;
  await publishers[who]?.send(["", frame, packr.pack([Date.now() / 1000, events, 0])]);
}
const storedEvent = (names: bigint[], parent: bigint | null, tokens: Uint32Array) => ({
  type: "BlockStored",
  block_hashes: names,
  parent_block_hash: parent,
  token_ids: [...tokens],
  block_size: BLOCK_SIZE,
  lora_id: null,
  medium: "GPU",
});
for (let who = 0; who < INSTANCES; who++) await publish(who, [storedEvent([...hashes], null, prompt)]);
const taken = (count: number) => until((text) => Number(/outcome="blocks_stored"} (\d+)/.exec(text)?.[1] ?? 0) >= count);
await taken(INSTANCES * hashes.length);

// New blocks, as prefill makes them: 64 blocks an event, one event a batch.
const INTAKE_EVENTS = 4000;
const EVENT_BLOCKS = 64;
const before = await cpuSeconds();
const intakeBegan = performance.now();
for (let event = 0; event < INTAKE_EVENTS; event++) {
  const tokens = Uint32Array.from({ length: EVENT_BLOCKS * BLOCK_SIZE }, (_, i) => (event * 31 + i * 17) % 150_000);
  const names = Array.from({ length: EVENT_BLOCKS }, (_, i) => BigInt(event + 1) * 1_000_003n * 2n ** 20n + BigInt(i));
  await publish(event % INSTANCES, [storedEvent(names, null, tokens)]);
  if (event % 64 === 0) await delay(0);
}
await taken(INSTANCES * hashes.length + INTAKE_EVENTS * EVENT_BLOCKS);
const intake = ((await cpuSeconds()) - before) / (INTAKE_EVENTS * EVENT_BLOCKS);
rows.push({
  what: "server: intake by ZMQ, CPU per block",
  value: intake * 1e6,
  unit: "us",
  goal: { atMost: 0.6 },
  note: `events of ${EVENT_BLOCKS} blocks, ${Math.round(performance.now() - intakeBegan)} ms in all`,
});

const scope = { model: "m", block_size: BLOCK_SIZE };
const json = Buffer.from(JSON.stringify({ ...scope, token_ids: [...prompt] }));
const raw = Buffer.from(prompt.buffer, 0, prompt.byteLength);
const byHash = Buffer.from(`{"model":"m","block_size":${BLOCK_SIZE},"seq_hashes":[${[...hashes].join(",")}]}`);
const forms: [string, string, Buffer, string, number][] = [
  ["server: 32k tokens as JSON, CPU per request", "/query", json, "application/json", 450],
  ["server: 32k tokens raw, CPU per request", `/query?model=m&block_size=${BLOCK_SIZE}`, raw, "application/octet-stream", 140],
  ["server: 2048 hashes as JSON, CPU per request", "/query_by_hash", byHash, "application/json", 85],
];
const raws: Record<string, unknown> = { core };
for (const [what, path, body, type, goal] of forms) {
  const answer = JSON.parse((await ask(path, body, type)).toString()) as { default: Record<string, { longest_matched: number }> };
  if (Object.values(answer.default).filter(({ longest_matched }) => longest_matched === PROMPT_TOKENS).length !== INSTANCES)
    throw new Error(`${what}: not all instances match`);
  for (let i = 0; i < ROUNDS; i++) await ask(path, body, type);
  const started = await cpuSeconds();
  const latencies: number[] = [];
  for (let i = 0; i < ROUNDS * 4; i++) {
    const from = performance.now();
    await ask(path, body, type);
    latencies.push((performance.now() - from) * 1000);
  }
  const cpu = ((await cpuSeconds()) - started) / (ROUNDS * 4);
  raws[what] = { latencies: latencies.map(Math.round), bodyBytes: body.length };
  const sorted = latencies.sort((a, b) => a - b);
  rows.push({
    what,
    value: cpu * 1e6,
    unit: "us",
    goal: { atMost: goal },
    samples: latencies.length,
    note: `p50 ${Math.round(sorted[Math.floor(sorted.length / 2)] ?? 0)} us round trip, ${body.length} bytes`,
  });
}

for (const publisher of publishers) publisher.close();
agent.destroy();
server.kill("SIGTERM");
await new Promise((resolve) => server.once("exit", resolve));
rmSync(home, { recursive: true, force: true });
report("indexer", rows, raws);
