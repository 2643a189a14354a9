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

export type Option = Readonly<MutableOption>;
/** One such object is filled again and again, since a request may weigh a hundred engines. */
export type MutableOption = {
  name: string;
  /** Undefined if the prompt's tokens are not known: its prefill then costs the same everywhere. */
  promptTokens: number | undefined;
  certainTokens: number;
  uncertainTokens: number;
  waitingTokens: number;
  running: number;
  kvUsage: number;
  prefillTokensPerSecond: number;
};

export type Cost = {
  readonly name: string;
  readonly seconds: number;
  readonly prefillSeconds: number;
  readonly waitingSeconds: number;
  readonly runningSeconds: number;
};

function prefillSecondsOf({ promptTokens, certainTokens, uncertainTokens, prefillTokensPerSecond }: Option, { uncertainShare }: PlaceRules): number {
  return promptTokens === undefined ? 0 : Math.max(0, promptTokens - certainTokens - uncertainShare * uncertainTokens) / prefillTokensPerSecond;
}

const waitingSecondsOf = ({ waitingTokens, prefillTokensPerSecond }: Option): number => waitingTokens / prefillTokensPerSecond;

function runningSecondsOf({ running, kvUsage }: Option, { runningRequestSeconds, kvFullSeconds }: PlaceRules): number {
  return running * runningRequestSeconds + (kvUsage >= KV_FULL ? kvFullSeconds : 0);
}

export function secondsOf(option: Option, rules: PlaceRules): number {
  return prefillSecondsOf(option, rules) + waitingSecondsOf(option) + runningSecondsOf(option, rules);
}

export function costOf(option: Option, rules: PlaceRules): Cost {
  return {
    name: option.name,
    seconds: secondsOf(option, rules),
    prefillSeconds: prefillSecondsOf(option, rules),
    waitingSeconds: waitingSecondsOf(option),
    runningSeconds: runningSecondsOf(option, rules),
  };
}

/**
 * Returns the index of the cheapest engine. Among equal ones the session's last engine wins; otherwise `random` decides, so that prompts without a
 * match do not all go to the first one. Returns -1 if `count`, the number of engines, is 0.
 */
export function chooseAt(
  seconds: { readonly [at: number]: number },
  count: number,
  { tieSeconds }: PlaceRules,
  isSessions: (at: number) => boolean,
  random: () => number,
): number {
  let best = Number.POSITIVE_INFINITY;
  for (let at = 0; at < count; at++) best = Math.min(best, seconds[at] as number);
  const most = best + tieSeconds;
  let equal = 0;
  for (let at = 0; at < count; at++) {
    if ((seconds[at] as number) > most) continue;
    if (isSessions(at)) return at;
    equal++;
  }
  let left = Math.floor(random() * equal);
  for (let at = 0; at < count; at++) if ((seconds[at] as number) <= most && left-- === 0) return at;
  return -1;
}

export function choose(costs: readonly Cost[], rules: PlaceRules, sessionEngine: string | undefined, random: () => number): Cost | undefined {
  const seconds = costs.map((cost) => cost.seconds);
  return costs[chooseAt(seconds, costs.length, rules, (at) => costs[at]?.name === sessionEngine, random)];
}
