// The router's policy beside others on recorded agent sessions: tokens computed again, and time to first token, with simulated engines.
import { median, percentile, progress, type Row, report } from "./report.ts";
import { roundRobin, svc } from "./router-policies.ts";
import { BLOCK_TOKENS, type EngineState, type Policy, readSessions, simulate, type Turn } from "./router-simulation.ts";

const PATH = process.env["SVC_BENCH_SESSIONS"] ?? "";
const REQUESTS = Number(process.env["SVC_BENCH_REQUESTS"] ?? 8_000);
const ENGINES = 8;
const WORKING_SET_SHARE = 0.7;
const TOKENS_PER_S = 8_000;
const START_EVERY_S = 4;

/** Written again after its description: prefill that would be left on a worker, and blocks in flight there, in blocks; the least of both. */
function dynamo(): Policy {
  return {
    name: "Dynamo's cost (reimplemented)",
    choose(turn, engines, nowS) {
      const costOn = (engine: EngineState) => {
        const waiting = (Math.max(0, engine.freeAtS - nowS) * TOKENS_PER_S) / BLOCK_TOKENS;
        return waiting + (turn.blocks.length - engine.cache.matched(turn)) + engine.activeBlocks + turn.blocks.length;
      };
      return least(engines.map(costOn));
    },
  };
}

/**
 * SGLang's cache_aware, written again after its description: a tree of what was sent per worker; the longest match wins above a share of 0.3,
 * else the smallest tree; where loads differ by more than 64 and 1.5 times, the least loaded.
 */
function cacheAware(): Policy {
  const trees = Array.from({ length: ENGINES }, () => new Set<number>());
  const matchOf = (tree: ReadonlySet<number>, { blocks }: Turn) => {
    let at = 0;
    while (at < blocks.length && tree.has(blocks[at] as number)) at++;
    return at;
  };
  return {
    name: "cache_aware (reimplemented)",
    choose(turn, engines) {
      const loads = engines.map(({ inFlight }) => inFlight);
      const [most, fewest] = [Math.max(...loads), Math.min(...loads)];
      if (most - fewest > 64 && most > 1.5 * fewest) return least(loads);
      const matches = trees.map((tree) => matchOf(tree, turn));
      const best = least(matches.map((match) => -match));
      return (matches[best] as number) / Math.max(1, turn.blocks.length) > 0.3 ? best : least(trees.map(({ size }) => size));
    },
    sent(turn, engine) {
      for (const block of turn.blocks) trees[engine]?.add(block);
    },
  };
}

const least = (values: readonly number[]) => values.indexOf(Math.min(...values));

if (PATH === "") {
  process.stdout.write("set SVC_BENCH_SESSIONS to a file of recorded agent sessions (bench/README.md says of which form)\n");
} else {
  const { sessions, blocks } = readSessions(PATH, REQUESTS);
  const capacityBlocks = Math.floor((WORKING_SET_SHARE * blocks) / ENGINES);
  progress(`${sessions.length} sessions, ${blocks} different blocks, ${capacityBlocks} of them fit into an engine`);
  let state = 7;
  const random = () => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return state / 2 ** 32;
  };
  const outcomes = [roundRobin(ENGINES), cacheAware(), dynamo(), svc(random, TOKENS_PER_S)].map((policy) => {
    const outcome = simulate(sessions, policy, { engines: ENGINES, capacityBlocks, tokensPerS: TOKENS_PER_S, startEveryS: START_EVERY_S });
    progress(policy.name);
    return { name: policy.name, again: outcome.computedTokens - outcome.newTokens, ...outcome };
  });
  const base = outcomes[0]?.again ?? Number.NaN;
  const peers = outcomes.slice(0, -1);
  const best = (of: (one: (typeof outcomes)[number]) => number) => Math.min(...peers.map(of));
  const rows: Row[] = outcomes.flatMap((one) => {
    const { name, again, firstTokenS } = one;
    const isOurs = name === "svc router";
    const goal = (atMost: number) => (isOurs ? { goal: { atMost: Number(atMost.toPrecision(4)) } } : {});
    return [
      {
        what: `tokens computed again: ${name}`,
        value: again / 1e6,
        unit: "M",
        ...goal(
          Math.min(
            0.5 * base,
            best(({ again: other }) => other),
          ) / 1e6,
        ),
        note: `${(again / base).toFixed(2)} of round robin`,
      },
      { what: `time to first token, p50: ${name}`, value: median(firstTokenS), unit: "s", ...goal(best((other) => median(other.firstTokenS))) },
      {
        what: `time to first token, p99: ${name}`,
        value: percentile(firstTokenS, 0.99),
        unit: "s",
        ...goal(best((other) => percentile(other.firstTokenS, 0.99))),
      },
    ];
  });
  report("router", rows, { requests: outcomes[0]?.firstTokenS.length ?? 0, blocks, capacityBlocks });
}
