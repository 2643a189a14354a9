// Simulates engines with prefix caches under recorded agent sessions, block by block, with a policy that chooses the engine of each request.
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";

export const BLOCK_TOKENS = 64;
/** Pauses of people are cut to this, so that a run covers the sessions in an hour or two of simulated time. */
const LONGEST_THINK_S = 60;
const OUTPUT_TOKENS_PER_S = 50;

type Recorded = [t: number, api: number, think: number, stop: string, input: number, output: number, common: number, runs: [number, number][]];
type Line = { block_size: number; tool_tokens: number; system_tokens: number; requests: (Recorded | { sub: Recorded[]; t: number })[] };

/** One request after the other; each has the ids of its prompt's blocks. */
export type Turn = { readonly blocks: Uint32Array; readonly tokens: number; readonly output: number; readonly thinkS: number };
export type Session = readonly Turn[];

/** Reads sessions until they have `most` requests; ids of blocks are made unique, but for the beginnings that sessions share. */
export function readSessions(path: string, most: number): { sessions: Session[]; blocks: number } {
  const bytes = readFileSync(path);
  const text = (path.endsWith(".gz") ? gunzipSync(bytes) : bytes).toString("utf8");
  const shared = new Map<string, Uint32Array>();
  const sessions: Session[] = [];
  let next = 1;
  let count = 0;
  for (const line of text.split("\n")) {
    if (line === "" || count >= most) continue;
    const { tool_tokens, system_tokens, requests } = JSON.parse(line) as Line;
    const key = `${tool_tokens} ${system_tokens}`;
    const begin = shared.get(key) ?? Uint32Array.from({ length: Math.floor((tool_tokens + system_tokens) / BLOCK_TOKENS) }, () => next++);
    shared.set(key, begin);
    const names = new Map<number, number>();
    const nameOf = (id: number, at: number): number => {
      if (at < begin.length) return begin[at] as number;
      const known = names.get(id) ?? next++;
      names.set(id, known);
      return known;
    };
    const chain = (recorded: readonly Recorded[]): Session => {
      let before: number[] = [];
      return recorded.map(([, , think, , input, output, common, runs]) => {
        const ids = before.slice(0, common);
        for (const [first, length] of runs) for (let at = 0; at < length; at++) ids.push(first + at);
        before = ids;
        return { blocks: Uint32Array.from(ids, nameOf), tokens: input, output, thinkS: Math.min(think, LONGEST_THINK_S) };
      });
    };
    const isSub = (one: Line["requests"][number]): one is { sub: Recorded[]; t: number } => !Array.isArray(one);
    // A sub-agent goes on beside its parent.
    for (const session of [chain(requests.filter((one): one is Recorded => !isSub(one))), ...requests.filter(isSub).map(({ sub }) => chain(sub))]) {
      if (session.length === 0) continue;
      sessions.push(session);
      count += session.length;
    }
  }
  return { sessions, blocks: next - 1 };
}

export class SimulatedCache {
  readonly #blocks = new Map<number, true>();
  readonly #capacity: number;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** Leading blocks that are there; the last token of a prompt is always computed. */
  matched({ blocks }: Turn): number {
    let at = 0;
    while (at < blocks.length && this.#blocks.has(blocks[at] as number)) at++;
    return at;
  }

  use({ blocks }: Turn): void {
    // The end goes first, so that the beginnings of prompts stay longest.
    for (let at = blocks.length - 1; at >= 0; at--) {
      const block = blocks[at] as number;
      this.#blocks.delete(block);
      this.#blocks.set(block, true);
    }
    for (const block of this.#blocks.keys()) {
      if (this.#blocks.size <= this.#capacity) break;
      this.#blocks.delete(block);
    }
  }
}

export type EngineState = {
  readonly cache: SimulatedCache;
  /** When its prefill is through with what it has. */
  freeAtS: number;
  inFlight: number;
  /** Blocks of requests in flight, for policies that count them. */
  activeBlocks: number;
};
export type Policy = {
  readonly name: string;
  choose(turn: Turn, engines: readonly EngineState[], nowS: number): number;
  sent?(turn: Turn, engine: number): void;
};
export type Outcome = { readonly computedTokens: number; readonly newTokens: number; readonly firstTokenS: number[] };

type Event = { atS: number; act: () => void };

export function simulate(
  sessions: readonly Session[],
  policy: Policy,
  setup: { engines: number; capacityBlocks: number; tokensPerS: number; startEveryS: number },
): Outcome {
  const engines: EngineState[] = Array.from({ length: setup.engines }, () => ({
    cache: new SimulatedCache(setup.capacityBlocks),
    freeAtS: 0,
    inFlight: 0,
    activeBlocks: 0,
  }));
  const events: Event[] = [];
  const later = (atS: number, act: () => void) => {
    let low = 0;
    let high = events.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((events[middle] as Event).atS > atS) low = middle + 1;
      else high = middle;
    }
    events.splice(low, 0, { atS, act });
  };
  const seen = new Set<number>();
  const firstTokenS: number[] = [];
  let computedTokens = 0;
  let newTokens = 0;
  const ask = (session: Session, at: number, nowS: number) => {
    const turn = session[at];
    if (turn === undefined) return;
    const chosen = policy.choose(turn, engines, nowS);
    const engine = engines[chosen] as EngineState;
    policy.sent?.(turn, chosen);
    const left = Math.max(1, turn.tokens - engine.cache.matched(turn) * BLOCK_TOKENS);
    computedTokens += left;
    for (const block of turn.blocks) {
      if (!seen.has(block)) newTokens += BLOCK_TOKENS;
      seen.add(block);
    }
    engine.cache.use(turn);
    engine.freeAtS = Math.max(engine.freeAtS, nowS) + left / setup.tokensPerS;
    firstTokenS.push(engine.freeAtS - nowS);
    engine.inFlight++;
    engine.activeBlocks += turn.blocks.length;
    const endS = engine.freeAtS + turn.output / OUTPUT_TOKENS_PER_S;
    later(endS, () => {
      engine.inFlight--;
      engine.activeBlocks -= turn.blocks.length;
      later(endS + turn.thinkS, () => ask(session, at + 1, endS + turn.thinkS));
    });
  };
  for (const [number, session] of sessions.entries()) later(number * setup.startEveryS, () => ask(session, 0, number * setup.startEveryS));
  for (let event = events.pop(); event !== undefined; event = events.pop()) event.act();
  return { computedTokens, newTokens, firstTokenS };
}
