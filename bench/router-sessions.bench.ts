// Recorded agent sessions over the wire: real engines' HTTP and KV events, the indexer and the router, beside the simulation of `router.bench.ts`.
// Times of people and engines are shortened by SPEED; what the programs themselves take is not, so that it counts SPEED times in the results.
import { once } from "node:events";
import { Agent, request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { median, percentile, progress, type Row, report } from "./report.ts";
import { roundRobin, rules, svc } from "./router-policies.ts";
import { World } from "./router-routers.ts";
import { BLOCK_TOKENS, readSessions, type Session, simulate, type Turn } from "./router-simulation.ts";

const PATH = process.env["SVC_BENCH_SESSIONS"] ?? "";
const SPEED = Number(process.env["SVC_BENCH_SPEED"] ?? 10);
const SESSIONS = 20;
const TURNS = 15;
const ENGINES = 8;
const WORKING_SET_SHARE = 0.7;
const TOKENS_PER_S = 8_000;
const OUTPUT_TOKENS_PER_S = 50;
const START_EVERY_S = 4;
const SPECULATIVE_S = 10;
/** Ties are decided at random, and one choice moves a whole session, so that single runs of the simulation differ fourfold. */
const SIMULATIONS = 51;
const ENGINE = fileURLToPath(new URL("../docs/example-engine.ts", import.meta.url));

const agent = new Agent({ keepAlive: true, maxSockets: 256 });
type Answered = { readonly firstByteS: number; readonly computed: number };

/** Each block of the recording becomes tokens of its own; the tokens behind the last whole block are the turn's own. */
function promptOf({ blocks, tokens }: Turn, own: number): number[] {
  const prompt: number[] = [];
  for (const block of blocks) for (let at = 0; at < BLOCK_TOKENS; at++) prompt.push(block * BLOCK_TOKENS + at);
  while (prompt.length < tokens) prompt.push(0xf000_0000 + own);
  return prompt.slice(0, Math.max(1, tokens));
}

function ask(url: string, prompt: readonly number[]): Promise<Answered> {
  const body = JSON.stringify({ model: "demo", prompt, stream: true, stream_options: { include_usage: true }, max_tokens: 1 });
  const begin = performance.now();
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
    const asking = request(`${url}/v1/completions`, { agent, method: "POST", headers }, (answer) => {
      let firstMs = 0;
      let text = "";
      answer.setEncoding("utf8").on("data", (chunk: string) => {
        firstMs ||= performance.now() - begin;
        text += chunk;
      });
      answer.once("end", () => {
        const cached = /"cached_tokens":(\d+)/.exec(text)?.[1];
        if (answer.statusCode !== 200 || cached === undefined) reject(new Error(`${url} answered ${answer.statusCode}: ${text.slice(0, 300)}`));
        else resolve({ firstByteS: (firstMs / 1000) * SPEED, computed: prompt.length - Number(cached) });
      });
    });
    asking.on("error", reject);
    asking.end(body);
  });
}

async function play(sessions: readonly Session[], urlOf: () => string): Promise<Answered[]> {
  const answered: Answered[] = [];
  let own = 0;
  await Promise.all(
    sessions.map(async (session, number) => {
      await sleep((number * START_EVERY_S * 1000) / SPEED);
      for (const turn of session) {
        answered.push(await ask(urlOf(), promptOf(turn, own++)));
        await sleep(((turn.output / OUTPUT_TOKENS_PER_S + turn.thinkS) * 1000) / SPEED);
      }
    }),
  );
  return answered;
}

/** Starts engines that publish to the indexer, each with its own empty cache. */
async function engines(world: World, indexer: string, capacityBlocks: number): Promise<string[]> {
  return Promise.all(
    Array.from({ length: ENGINES }, async (_, at) => {
      const flags = {
        name: `e${at}`,
        port: "0",
        "block-size": BLOCK_TOKENS,
        blocks: capacityBlocks,
        "prefill-rate": TOKENS_PER_S * SPEED,
        "token-ms": 0,
        indexer,
      };
      const child = world.start(process.execPath, [ENGINE, ...Object.entries(flags).map(([name, value]) => `--${name}=${value}`)]);
      const [line] = (await once(child.stdout as NonNullable<typeof child.stdout>, "data")) as [Buffer];
      return /http:\S+/.exec(line.toString())?.[0] ?? "";
    }),
  );
}

if (PATH === "") {
  process.stdout.write("set SVC_BENCH_SESSIONS to a file of recorded agent sessions (bench/README.md says of which form)\n");
} else {
  const sessions = readSessions(PATH, Number.POSITIVE_INFINITY)
    .sessions.filter(({ length }) => length >= TURNS)
    .slice(0, SESSIONS)
    .map((session) => session.slice(0, TURNS));
  const blocks = new Set(sessions.flat().flatMap((turn) => [...turn.blocks])).size;
  const capacityBlocks = Math.floor((WORKING_SET_SHARE * blocks) / ENGINES);
  const newTokens = blocks * BLOCK_TOKENS;
  progress(`${sessions.length} sessions of ${TURNS} requests, ${blocks} different blocks, ${capacityBlocks} of them fit into an engine`);
  const setup = { engines: ENGINES, capacityBlocks, tokensPerS: TOKENS_PER_S, startEveryS: START_EVERY_S };
  // The router's own times are shortened like those of the engines.
  const timed = [
    `--router.prefill_tokens_per_second=${TOKENS_PER_S * SPEED}`,
    `--router.running_request_seconds=${rules.runningRequestSeconds / SPEED}`,
    `--router.kv_full_seconds=${rules.kvFullSeconds / SPEED}`,
    `--router.tie_seconds=${rules.tieSeconds / SPEED}`,
    `--router.speculative_seconds=${SPECULATIVE_S / SPEED}`,
    `--router.poll_ms=${Math.max(50, 1_000 / SPEED)}`,
  ];
  const rows: Row[] = [];
  for (const policy of [roundRobin(ENGINES), svc(Math.random, TOKENS_PER_S)]) {
    await using world = new World();
    const indexer = await world.indexer();
    const urls = await engines(world, indexer, capacityBlocks);
    const isOurs = policy.name !== "round robin";
    const router = isOurs ? (await world.svc(urls, [`--indexer=${indexer}`, "--router.indexer_timeout_ms=1000", ...timed])).url : "";
    let next = 0;
    const wire = await play(sessions, () => (isOurs ? router : (urls[next++ % ENGINES] as string)));
    const simulated = Array.from({ length: isOurs ? SIMULATIONS : 1 }, () => simulate(sessions, isOurs ? policy : roundRobin(ENGINES), setup));
    const again = wire.reduce((sum, { computed }) => sum + computed, 0) - newTokens;
    const said = (values: readonly number[], unit: string) => {
      const [low, high] = [percentile(values, 0.05), percentile(values, 0.95)];
      return `simulated ${median(values).toFixed(2)} ${unit}${values.length === 1 ? "" : ` (${low.toFixed(2)} to ${high.toFixed(2)} in nine of ten runs)`}`;
    };
    const againSimulated = simulated.map(({ computedTokens }) => (computedTokens - newTokens) / 1e6);
    const firstS = wire.map(({ firstByteS }) => firstByteS);
    progress(`${policy.name}: ${wire.length} requests`);
    rows.push(
      { what: `${policy.name}: tokens computed again, over the wire`, value: again / 1e6, unit: "M", note: said(againSimulated, "M") },
      {
        what: `${policy.name}: time to first token, p50`,
        value: median(firstS),
        unit: "s",
        note: said(
          simulated.map(({ firstTokenS }) => median(firstTokenS)),
          "s",
        ),
      },
      {
        what: `${policy.name}: time to first token, p99`,
        value: percentile(firstS, 0.99),
        unit: "s",
        note: said(
          simulated.map(({ firstTokenS }) => percentile(firstTokenS, 0.99)),
          "s",
        ),
      },
    );
  }
  report("router-sessions", rows, { requests: sessions.flat().length, blocks, capacityBlocks, speed: SPEED });
}
