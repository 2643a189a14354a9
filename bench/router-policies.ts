// Policies of the router's benches: turns in order, and svc's own code.
import { choose, costOf } from "../packages/router/src/place.ts";
import { BLOCK_TOKENS, type Policy } from "./router-simulation.ts";

/** The defaults of config/default.toml. */
export const rules = { uncertainShare: 0.5, runningRequestSeconds: 0.005, kvFullSeconds: 1, tieSeconds: 0.002 };

export function roundRobin(engines: number): Policy {
  let at = 0;
  return { name: "round robin", choose: () => at++ % engines };
}

/** svc's own code chooses; what it knows of the caches is what the indexer says, without a lag. */
export function svc(random: () => number, tokensPerS: number): Policy {
  return {
    name: "svc router",
    choose(turn, engines, nowS) {
      const costs = engines.map((engine, number) =>
        costOf(
          {
            name: String(number),
            promptTokens: turn.tokens,
            certainTokens: Math.min(turn.tokens, engine.cache.matched(turn) * BLOCK_TOKENS),
            uncertainTokens: 0,
            waitingTokens: Math.max(0, engine.freeAtS - nowS) * tokensPerS,
            running: engine.inFlight,
            kvUsage: 0,
            prefillTokensPerSecond: tokensPerS,
          },
          rules,
        ),
      );
      return Number(choose(costs, rules, undefined, random)?.name);
    },
  };
}
