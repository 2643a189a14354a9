// Chooses an engine by expected time: prefill that is left, work that waits there, and how full it is. Pure, so that it can be tested alone.

export type PlaceRules = {
  readonly uncertainShare: number;
  readonly runningRequestSeconds: number;
  readonly kvFullSeconds: number;
  /** Engines within this much of the best one are equal. */
  readonly tieSeconds: number;
};

/** A usage of the KV cache from which new prompts make the engine preempt others. */
const KV_FULL = 0.95;

export type Option = {
  readonly name: string;
  /** Undefined if the prompt's tokens are not known: its prefill then costs the same everywhere. */
  readonly promptTokens: number | undefined;
  readonly certainTokens: number;
  readonly uncertainTokens: number;
  readonly waitingTokens: number;
  readonly running: number;
  readonly kvUsage: number;
  readonly prefillTokensPerSecond: number;
};

export type Cost = {
  readonly name: string;
  readonly seconds: number;
  readonly prefillSeconds: number;
  readonly waitingSeconds: number;
  readonly runningSeconds: number;
};

export function costOf(option: Option, rules: PlaceRules): Cost {
  const { promptTokens, certainTokens, uncertainTokens, waitingTokens, prefillTokensPerSecond } = option;
  const left = promptTokens === undefined ? 0 : Math.max(0, promptTokens - certainTokens - rules.uncertainShare * uncertainTokens);
  const prefillSeconds = left / prefillTokensPerSecond;
  const waitingSeconds = waitingTokens / prefillTokensPerSecond;
  const runningSeconds = option.running * rules.runningRequestSeconds + (option.kvUsage >= KV_FULL ? rules.kvFullSeconds : 0);
  return { name: option.name, seconds: prefillSeconds + waitingSeconds + runningSeconds, prefillSeconds, waitingSeconds, runningSeconds };
}

/**
 * Returns the cheapest engine. Among equal ones the session's last engine wins; otherwise `random` decides, so that prompts without a match
 * do not all go to the first one. Returns undefined if `costs` is empty.
 */
export function choose(costs: readonly Cost[], rules: PlaceRules, sessionEngine: string | undefined, random: () => number): Cost | undefined {
  let best = Number.POSITIVE_INFINITY;
  for (const { seconds } of costs) best = Math.min(best, seconds);
  const equal = costs.filter(({ seconds }) => seconds <= best + rules.tieSeconds);
  return equal.find(({ name }) => name === sessionEngine) ?? equal[Math.floor(random() * equal.length)];
}
