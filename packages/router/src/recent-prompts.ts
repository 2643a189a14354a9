// Prompts that were just sent to an engine: what it will have cached before its events say so.

/** The prompts kept per engine; older ones are in the indexer by then. */
const MAX_PROMPTS = 128;
/** Their tokens together: 64 MiB. */
const MAX_TOKENS = 16 * 1024 * 1024;

export type RecentPrompt = {
  readonly tokens: Uint32Array;
  readonly hashes: Uint32Array;
  /** Prompts of another model, adapter or salt share nothing. */
  readonly space: string;
  readonly untilMs: number;
  /** How many of its tokens the indexer already knew when the prompt was sent. Whether these are still cached, only the indexer says. */
  readonly indexed: number;
  /** The first answer byte came, so the prompt has been computed. */
  computed: boolean;
};

export type RecentMatch = { readonly certain: number; readonly uncertain: number };
const none: RecentMatch = { certain: 0, uncertain: 0 };

export class RecentPrompts {
  readonly #keepMs: number;
  #prompts: RecentPrompt[] = [];
  /** The same prompts by a hash of their first tokens: an engine may have many that share nothing with a new one. */
  readonly #byStart = new Map<number, RecentPrompt[]>();
  #tokens = 0;

  constructor(keepMs: number) {
    this.#keepMs = keepMs;
  }

  add(tokens: Uint32Array, space: string, nowMs: number, indexed = 0): RecentPrompt {
    const prompt = { tokens, hashes: prefixHashes(tokens), space, untilMs: nowMs + this.#keepMs, indexed, computed: false };
    let expired = 0;
    // All are kept equally long, so those that have expired come first.
    while (expired < this.#prompts.length && (this.#prompts[expired] as RecentPrompt).untilMs <= nowMs) expired++;
    this.#drop(expired);
    if (this.#keepMs > 0 && tokens.length <= MAX_TOKENS) {
      this.#prompts.push(prompt);
      const start = startOf(prompt.hashes);
      const alike = this.#byStart.get(start);
      if (alike === undefined) this.#byStart.set(start, [prompt]);
      else alike.push(prompt);
      this.#tokens += tokens.length;
    }
    while (this.#prompts.length > MAX_PROMPTS || this.#tokens > MAX_TOKENS) this.#drop(1);
    return prompt;
  }

  /** False if no prompt can match one with this `startOfPrompt`. */
  mayMatch(start: number): boolean {
    return this.#byStart.has(start);
  }

  /** The engine did not take the prompt. */
  remove(prompt: RecentPrompt): void {
    const at = this.#prompts.indexOf(prompt);
    if (at < 0) return;
    this.#prompts.splice(at, 1);
    this.#forget(prompt);
  }

  clear(): void {
    this.#prompts = [];
    this.#byStart.clear();
    this.#tokens = 0;
  }

  /**
   * Returns the match in tokens of complete blocks: `certain` ones are computed, `uncertain` ones follow them and are still being computed.
   * `indexed` is what the indexer knows of these tokens now. A prompt that the indexer knows as a whole is forgotten here, because this memory
   * would not see a later eviction. Prompts that share fewer than STEP tokens count as sharing none.
   */
  match(tokens: Uint32Array, space: string, blockSize: number, nowMs: number, indexed = 0): RecentMatch {
    if (this.#prompts.length === 0) return none;
    const hashes = prefixHashes(tokens);
    const alike = this.#byStart.get(startOf(hashes));
    if (alike === undefined) return none;
    const most = tokens.length - (tokens.length % blockSize);
    let certain = 0;
    let all = 0;
    // Many prompts may begin alike, as with one system prompt; none can match more than all of this one.
    for (let at = alike.length - 1; at >= 0 && certain < most; at--) {
      const prompt = alike[at] as RecentPrompt;
      if (prompt.untilMs <= nowMs || prompt.space !== space) continue;
      const shared = sharedTokens(prompt, tokens, hashes);
      const matched = shared - (shared % blockSize);
      if (prompt.computed && matched > 0 && matched <= indexed && shared + blockSize > prompt.tokens.length) this.remove(prompt);
      if (matched <= Math.max(indexed, prompt.indexed)) continue;
      if (prompt.computed) certain = Math.max(certain, matched);
      all = Math.max(all, matched);
    }
    return { certain, uncertain: Math.max(0, all - certain) };
  }

  #drop(count: number): void {
    if (count > 0) for (const prompt of this.#prompts.splice(0, count)) this.#forget(prompt);
  }

  #forget(prompt: RecentPrompt): void {
    this.#tokens -= prompt.tokens.length;
    const start = startOf(prompt.hashes);
    const others = this.#byStart.get(start)?.filter((one) => one !== prompt) ?? [];
    if (others.length > 0) this.#byStart.set(start, others);
    else this.#byStart.delete(start);
  }
}

/** Tokens that one prefix hash covers more than the one before it. */
const STEP = 16;
/** Per prompt, two 32-bit hashes of each prefix of a multiple of STEP tokens. */
const knownHashes = new WeakMap<Uint32Array, Uint32Array>();

/** Conversations share most of their tokens, so a binary search over prefix hashes replaces a comparison of all of them. */
function sharedTokens({ tokens: one, hashes: these }: RecentPrompt, other: Uint32Array, those: Uint32Array): number {
  if (one === other) return one.length;
  const most = Math.min(one.length, other.length);
  let at = 0;
  if (most > STEP) {
    let low = 0;
    let high = Math.floor(most / STEP);
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      const entry = 2 * (middle - 1);
      if (these[entry] === those[entry] && these[entry + 1] === those[entry + 1]) low = middle;
      else high = middle - 1;
    }
    at = low * STEP;
  }
  while (at < most && one[at] === other[at]) at++;
  return at;
}

/** Prompts that share something have the same start. */
export const startOfPrompt = (tokens: Uint32Array): number => startOf(prefixHashes(tokens));

/** Prompts that are too short to have a hash are all alike. */
const startOf = (hashes: Uint32Array): number => hashes[0] ?? 0;

function prefixHashes(tokens: Uint32Array): Uint32Array {
  const known = knownHashes.get(tokens);
  if (known !== undefined) return known;
  const steps = Math.floor(tokens.length / STEP);
  const made = new Uint32Array(2 * steps);
  let one = SEEDS[0] as number;
  let other = SEEDS[1] as number;
  let at = 0;
  for (let step = 0; step < steps; step++) {
    for (const end = at + STEP; at < end; at++) {
      const token = tokens[at] as number;
      one = Math.imul(one ^ token, 0x9e3779b1);
      one ^= one >>> 15;
      other = Math.imul(other + token, 0x85ebca6b);
      other ^= other >>> 13;
    }
    made[2 * step] = one;
    made[2 * step + 1] = other;
  }
  knownHashes.set(tokens, made);
  return made;
}

/** Random, so that no client can make two prompts that are taken for equal. */
const SEEDS = crypto.getRandomValues(new Uint32Array(2));
