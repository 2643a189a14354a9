// The cache indexer: first its native core alone, including worst cases; then whole servers compared: CPU per request, and per ingested
// block.
import { execFileSync } from "node:child_process";
import { loadavg } from "node:os";
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
/** Forms are interleaved, so that other load on the machine affects all of them. */
const ROUNDS = 4;
const ROUND_REQUESTS = 2000;
const CORE_ROUNDS = 3;
/** 2 million blocks, so that the first second, when JavaScript is compiled and tables grow, has little weight. */
const INTAKE_EVENTS = 32_000;
const EVENT_BLOCKS = 64;
/** The interval of queries while blocks settle in the index; each query costs CPU, too. */
const POLL_MS = 300;
const packr = new Packr({ useRecords: false });

type Core = Readonly<Record<string, number>>;
const rows: Row[] = [];
const raw: Record<string, unknown> = {};

/** Rows show the medians of the rounds; the results keep each round with the machine's load. */
const coreRounds = Array.from({ length: CORE_ROUNDS }, () => ({
  loadAverage: loadavg(),
  figures: JSON.parse(execFileSync(CORE, { encoding: "utf8" })) as Core,
}));
raw["core"] = coreRounds;
const coreOf = (name: string): number => median(coreRounds.map(({ figures }) => figures[name] ?? Number.NaN));
const millions = (what: string, name: string, atLeast?: number): Row => ({
  what: `core: ${what}`,
  value: coreOf(name) / 1e6,
  unit: "M/s",
  ...(atLeast === undefined ? {} : { goal: { atLeast } }),
  samples: CORE_ROUNDS,
});
const took = (what: string, name: string, unit: string, atMost?: number): Row => ({
  what: `core: ${what}`,
  value: coreOf(name),
  unit,
  ...(atMost === undefined ? {} : { goal: { atMost } }),
  samples: CORE_ROUNDS,
});
rows.push(
  millions("stored, foreign hashes, three in four blocks unique", "foreign_unique_stored_per_second", 12),
  millions("stored while each block evicts another, foreign hashes", "churn_stored_per_second"),
  took("an event of 32 blocks that evicts, p99", "churn_event_p99_ms", "ms"),
  took("memory budget for each block that it holds, foreign hashes", "churn_budget_bytes_per_block", "B"),
  millions("removed, foreign hashes, chains from their tails", "foreign_tail_first_removed_per_second", 15),
  took("bytes per block, foreign hashes", "foreign_bytes_per_block", "B", 32),
  ...[1000, 64, 8].flatMap((instances) => [
    took(
      `full hit, 512 blocks, another prompt each time, ${instances} instances, p50`,
      `hit_spread_us_p50_${instances}_instances`,
      "us",
      instances === 64 ? 1.2 : undefined,
    ),
    took(`the same, p99`, `hit_spread_us_p99_${instances}_instances`, "us"),
    took(`half a prompt's blocks, ${instances} instances, p50`, `hit_half_us_p50_${instances}_instances`, "us", instances === 64 ? 0.5 : undefined),
    took(`miss, ${instances} instances, p50`, `miss_us_p50_${instances}_instances`, "us"),
  ]),
  ...[1000, 64].map((instances) =>
    took(`full hit of prompts that each lack another instance, ${instances} instances, p50`, `hit_mixed_us_p50_${instances}_instances`, "us"),
  ),
  took("miss of 32k tokens, p50", "token_miss_us_p50", "us"),
  took("answer for a salt that no event has named, 333 instances, p50", "unnamed_salt_answer_us_p50_333_instances", "us"),
  took("freeing cleared blocks, a step, p99", "reclaim_step_ms_p99", "ms"),
  millions("kind: stored, standard hashes, all unique", "standard_unique_stored_per_second"),
  millions("kind: stored, 64 publishers with one another's blocks", "standard_known_stored_per_second"),
  millions("kind: removed, beside one another in ascending order", "standard_ascending_removed_per_second"),
  took("kind: bytes per block, standard hashes", "standard_bytes_per_block", "B", 24),
  took("kind: full hit, one prompt over and over, 64 instances, p50", "hit_one_prompt_us_p50", "us"),
);

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
type Sent = Omit<Form, "what">;
/** `within` limits the time to a multiple of the named case's time. */
type Case = { what: string; ours: Sent; peer?: Sent; atMost?: number; within?: { of: string; times: number } };
const json = "application/json";
const msgpack = "application/msgpack";
const byTokens = "32k tokens as JSON";
const byHash = "2048 hashes as JSON";
const asJson = Buffer.from(JSON.stringify({ ...scope, token_ids: tokenIds }));
const cases: Case[] = [
  {
    what: byTokens,
    ours: { path: "/query", body: asJson, type: json },
    peer: { path: "/query", body: Buffer.from(JSON.stringify({ ...peerScope, token_ids: tokenIds })), type: json },
    atMost: 450,
  },
  {
    what: "32k tokens in a batch of one",
    ours: { path: "/query_batch", body: Buffer.from(`{"queries":[${asJson}]}`), type: json },
    within: { of: byTokens, times: 1.3 },
  },
  {
    what: "32k tokens as msgpack",
    ours: { path: "/query", body: packr.pack({ ...scope, token_ids: tokenIds }), type: msgpack },
    within: { of: byTokens, times: 1.3 },
  },
  {
    what: "32k tokens, with freshness",
    ours: { path: "/query", body: Buffer.from(JSON.stringify({ ...scope, freshness: true, token_ids: tokenIds })), type: json },
    within: { of: byTokens, times: 1.3 },
  },
  {
    what: "32k tokens raw",
    ours: { path: `/query?model=m&block_size=${BLOCK_SIZE}`, body: Buffer.from(prompt.buffer), type: "application/octet-stream" },
    atMost: 140,
  },
  {
    what: byHash,
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
  {
    what: "2048 hashes as msgpack",
    ours: { path: "/query_by_hash", body: packr.pack({ ...scope, seq_hashes: hashes }), type: msgpack },
    within: { of: byHash, times: 1.3 },
  },
];

/** Counts the instances that have the whole prompt; the peer counts its tiers in blocks or in tokens. */
async function wholeMatches(server: IndexerProcess, form: Sent): Promise<number> {
  const answer = await server.ask(form);
  if (form.type === msgpack) return answer.split("longest_matched").length - 1;
  return answer.match(new RegExp(`"longest_matched":(${PROMPT_TOKENS}|${hashes.length})[,}]`, "g"))?.length ?? 0;
}
const sent = cases.flatMap(({ what, ours: own, peer: theirs }) => [
  { server: ours, what, form: own },
  ...(peer === undefined || theirs === undefined ? [] : [{ server: peer, what, form: theirs }]),
]);
const measured = sent.map(({ server, what }) => ({
  name: `${server.name}: ${what}, CPU per request`,
  rounds: [] as { loadAverage: number[]; cpuUs: number; roundTripUs: number }[],
}));
for (let round = 0; round < ROUNDS; round++)
  for (const [i, { server, what, form }] of sent.entries()) {
    const { cpuUs, roundTripsUs } = await server.measure({ what, ...form }, ROUND_REQUESTS);
    measured[i]?.rounds.push({ loadAverage: loadavg(), cpuUs, roundTripUs: median(roundTripsUs) });
  }
const cpuOf = new Map<string, number>();
for (const [i, { server, what, form }] of sent.entries()) {
  const { name, rounds } = measured[i] as (typeof measured)[number];
  const matches = await wholeMatches(server, form);
  raw[name] = { rounds, bodyBytes: form.body.length, matches };
  const cpuUs = median(rounds.map((each) => each.cpuUs));
  cpuOf.set(`${server.name} ${what}`, cpuUs);
  const one = cases.find((each) => each.what === what);
  const note = `p50 ${Math.round(median(rounds.map(({ roundTripUs }) => roundTripUs)))} us round trip, ${matches} of ${INSTANCES} instances match`;
  rows.push({
    what: name,
    value: cpuUs,
    unit: "us",
    ...(server === ours && one?.atMost !== undefined ? { goal: { atMost: one.atMost } } : {}),
    samples: ROUNDS * ROUND_REQUESTS,
    note,
  });
}
for (const { what, peer: theirs, within } of cases) {
  const own = cpuOf.get(`svc ${what}`) ?? Number.NaN;
  if (within !== undefined)
    rows.push({ what: `${what}, to ${within.of}`, value: own / (cpuOf.get(`svc ${within.of}`) ?? Number.NaN), unit: "x", goal: { atMost: within.times } });
  if (peer !== undefined && theirs !== undefined)
    rows.push({ what: `svc over peer: ${what}`, value: own / (cpuOf.get(`${peer.name} ${what}`) ?? Number.NaN), unit: "x", goal: { atMost: 0.5 } });
}

// New blocks as prefill creates them: one event of 64 blocks per batch, interleaved from all publishers. They are created before the
// measurement.
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
