// The cache indexer: its native core alone; then whole servers side by side: CPU per request, and per block taken in.
import { execFileSync } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { openHasher } from "@svc/contract/index-client.ts";
import { sequenceFrame } from "@svc/contract/kv-event.ts";
import { Packr } from "msgpackr";
import { Publisher } from "zeromq";
import { type Form, type IndexerProcess, startOurs, startPeer } from "./indexer-servers.ts";
import { median, type Row, report } from "./report.ts";

const CORE = process.env["SVC_INDEXER_CORE_BENCH"] ?? fileURLToPath(new URL("../packages/indexer/native/build/core_bench", import.meta.url));
const INSTANCES = 64;
const BLOCK_SIZE = 16;
const PROMPT_TOKENS = 32_768;
const ROUNDS = 8000;
/** 2 million blocks: what the first second costs, when JavaScript is compiled and tables grow from nothing, is not what an indexer costs. */
const INTAKE_EVENTS = 32_000;
const EVENT_BLOCKS = 64;
/** Blocks settle in the index; what is asked for meanwhile costs CPU, too. */
const POLL_MS = 300;
const packr = new Packr({ useRecords: false });

type Core = {
  blocks: number;
  stored_new_per_second: number;
  stored_all_per_second: number;
  removed_per_second: number;
  bytes_per_block: number;
  hit_512_blocks_64_instances_us: { p50: number; p99: number };
  miss_us: { p50: number };
  reclaim_slice_ms: { p99: number };
};

const core = JSON.parse(execFileSync(CORE, { encoding: "utf8" })) as Core;
const rows: Row[] = [
  {
    what: "core: block entries stored",
    value: core.stored_all_per_second / 1e6,
    unit: "M/s",
    goal: { atLeast: 25 },
    note: `${core.blocks} blocks, ${INSTANCES} publishers`,
  },
  { what: "core: the same, none of the blocks known", value: core.stored_new_per_second / 1e6, unit: "M/s" },
  { what: "core: block entries removed", value: core.removed_per_second / 1e6, unit: "M/s", goal: { atLeast: 50 } },
  { what: "core: bytes per unique block", value: core.bytes_per_block, unit: "B", goal: { atMost: 24 } },
  { what: "core: full hit, 512 blocks, 64 instances, p50", value: core.hit_512_blocks_64_instances_us.p50, unit: "us", goal: { atMost: 2.5 } },
  { what: "core: miss, p50", value: core.miss_us.p50, unit: "us", goal: { atMost: 0.5 } },
  { what: "core: freeing cleared blocks, a slice, p99", value: core.reclaim_slice_ms.p99, unit: "ms", note: "queries wait at most this long for it" },
];
const raw: Record<string, unknown> = { core };

const hash = await openHasher();
const prompt = Uint32Array.from({ length: PROMPT_TOKENS }, (_, i) => (i * 7919) % 150_000);
const hashes = [...hash(prompt, BLOCK_SIZE)];
const locals = hashes.map((_, i) => hash(prompt.subarray(i * BLOCK_SIZE, (i + 1) * BLOCK_SIZE), BLOCK_SIZE)[0] ?? 0n);

const publishers: { socket: Publisher; sequence: bigint }[] = [];
for (let i = 0; i < INSTANCES; i++) {
  const socket = new Publisher({ linger: 0, sendHighWaterMark: 0 });
  await socket.bind("tcp://127.0.0.1:*");
  publishers.push({ socket, sequence: 0n });
}
const stored = (names: bigint[], tokens: Uint32Array) =>
  packr.pack([
    Date.now() / 1000,
    [{ type: "BlockStored", block_hashes: names, parent_block_hash: null, token_ids: [...tokens], block_size: BLOCK_SIZE, lora_id: null, medium: "GPU" }],
    0,
  ]);
async function publish(who: number, payload: Buffer): Promise<void> {
  const publisher = publishers[who];
  await publisher?.socket.send(["", sequenceFrame(publisher.sequence++), payload]);
}

const ours = await startOurs();
const peer = await startPeer(BLOCK_SIZE);
const servers = peer === undefined ? [ours] : [ours, peer];
for (const [i, { socket }] of publishers.entries()) {
  await ours.post("/register", { endpoint: socket.lastEndpoint, type: "vLLM", modelname: "m", instance_id: String(i), block_size: BLOCK_SIZE, dp_rank: 0 });
  await peer?.post("/register", { endpoint: socket.lastEndpoint, model_name: "m", instance_id: i, block_size: BLOCK_SIZE, dp_rank: 0 });
}
await delay(2000);
const first = stored(hashes, prompt);
for (let who = 0; who < INSTANCES; who++) await publish(who, first);
const taken = async (blocks: number) => {
  while (Number(/outcome="blocks_stored"} (\d+)/.exec(await ours.get("/metrics"))?.[1] ?? 0) < blocks) await delay(POLL_MS);
};
await taken(INSTANCES * hashes.length);

const scope = { model: "m", block_size: BLOCK_SIZE };
const peerScope = { model_name: "m" };
const tokenIds = [...prompt];
const bytes = (value: object, list: string, numbers: readonly bigint[]) =>
  Buffer.from(`${JSON.stringify(value).slice(0, -1)},"${list}":[${numbers.join(",")}]}`);
type Case = { what: string; ours: Omit<Form, "what">; peer?: Omit<Form, "what">; atMost: number };
const json = "application/json";
const cases: Case[] = [
  {
    what: "32k tokens as JSON",
    ours: { path: "/query", body: Buffer.from(JSON.stringify({ ...scope, token_ids: tokenIds })), type: json },
    peer: { path: "/query", body: Buffer.from(JSON.stringify({ ...peerScope, token_ids: tokenIds })), type: json },
    atMost: 450,
  },
  {
    what: "32k tokens raw",
    ours: { path: `/query?model=m&block_size=${BLOCK_SIZE}`, body: Buffer.from(prompt.buffer), type: "application/octet-stream" },
    atMost: 140,
  },
  {
    what: "2048 hashes as JSON",
    ours: { path: "/query_by_hash", body: bytes(scope, "seq_hashes", hashes), type: json },
    peer: {
      path: "/query_by_hash",
      body: bytes(
        peerScope,
        "block_hashes",
        locals.map((local) => BigInt.asIntN(64, local)),
      ),
      type: json,
    },
    atMost: 85,
  },
];

async function row(server: IndexerProcess, what: string, form: Omit<Form, "what">, goal?: number): Promise<number> {
  const answer = await server.ask(form);
  // Each of the instances has the whole prompt; the peer counts its tiers in blocks or in tokens.
  const whole = answer.match(new RegExp(`"longest_matched":(${PROMPT_TOKENS}|${hashes.length})[,}]`, "g"))?.length ?? 0;
  const { cpuUs, roundTripsUs } = await server.measure({ what, ...form }, ROUNDS);
  const name = `${server.name}: ${what}, CPU per request`;
  raw[name] = { roundTripsUs: roundTripsUs.map(Math.round), bodyBytes: form.body.length, wholeMatches: whole };
  const note = `p50 ${Math.round(median(roundTripsUs))} us round trip, ${whole} of ${INSTANCES} instances match wholly`;
  rows.push({ what: name, value: cpuUs, unit: "us", ...(goal === undefined ? {} : { goal: { atMost: goal } }), samples: ROUNDS, note });
  return cpuUs;
}
for (const { what, ours: form, peer: peerForm, atMost } of cases) {
  const own = await row(ours, what, form, atMost);
  if (peer === undefined || peerForm === undefined) continue;
  const theirs = await row(peer, what, peerForm);
  rows.push({ what: `svc over peer: ${what}`, value: own / theirs, unit: "x", goal: { atMost: what.includes("tokens") ? 0.5 : 1 } });
}

// New blocks, as prefill makes them: one event of 64 blocks a batch, from all publishers in turn. Made before the clock runs.
const batches = Array.from({ length: INTAKE_EVENTS }, (_, event) => {
  const tokens = Uint32Array.from({ length: EVENT_BLOCKS * BLOCK_SIZE }, (_, i) => (event * 31 + i * 17) % 150_000);
  const names = Array.from({ length: EVENT_BLOCKS }, (_, i) => BigInt(event + 1) * 1_000_003n * 2n ** 20n + BigInt(i));
  return stored(names, tokens);
});
const before = servers.map((server) => server.cpuSeconds());
for (const [event, batch] of batches.entries()) {
  await publish(event % INSTANCES, batch);
  if (event % 64 === 0) await delay(0);
}
await taken(INSTANCES * hashes.length + INTAKE_EVENTS * EVENT_BLOCKS);
await delay(2000);
for (const [i, server] of servers.entries()) {
  const cpuUs = ((server.cpuSeconds() - (before[i] ?? 0)) / (INTAKE_EVENTS * EVENT_BLOCKS)) * 1e6;
  rows.push({
    what: `${server.name}: intake by ZMQ, CPU per block`,
    value: cpuUs,
    unit: "us",
    ...(server === ours ? { goal: { atMost: 0.6 } } : {}),
    note: `events of ${EVENT_BLOCKS} blocks`,
  });
}

for (const { socket } of publishers) socket.close();
for (const server of servers) await server.close();
report("indexer", rows, raw);
