// Prompts that were just sent to an engine: what it will have cached before its events say so.

/** The prompts kept per engine; older ones are in the indexer by then. */
const MAX_PROMPTS = 128;
/** Their tokens together: 64 MiB. */
const MAX_TOKENS = 16 * 1024 * 1024;

export type RecentPrompt = {
  readonly tokens: Uint32Array;
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

  constructor(keepMs: number) {
    this.#keepMs = keepMs;
  }

  add(tokens: Uint32Array, space: string, nowMs: number, indexed = 0): RecentPrompt {
    const prompt = { tokens, space, untilMs: nowMs + this.#keepMs, indexed, computed: false };
    this.#prompts = this.#prompts.filter(({ untilMs }) => untilMs > nowMs);
    if (this.#keepMs > 0 && tokens.length <= MAX_TOKENS) this.#prompts.push(prompt);
    let count = this.#prompts.reduce((sum, one) => sum + one.tokens.length, 0);
    while (this.#prompts.length > MAX_PROMPTS || count > MAX_TOKENS) count -= this.#prompts.shift()?.tokens.length ?? 0;
    return prompt;
  }

  /** The engine did not take the prompt. */
  remove(prompt: RecentPrompt): void {
    this.#prompts = this.#prompts.filter((one) => one !== prompt);
  }

  clear(): void {
    this.#prompts = [];
  }

  /**
   * Returns the match in tokens of complete blocks: `certain` ones are computed, `uncertain` ones follow them and are still being computed.
   * `indexed` is what the indexer knows of these tokens now. A prompt that the indexer knows as a whole is forgotten here, because this memory
   * would not see a later eviction.
   */
  match(tokens: Uint32Array, space: string, blockSize: number, nowMs: number, indexed = 0): RecentMatch {
    if (this.#prompts.length === 0) return none;
    let certain = 0;
    let all = 0;
    for (const prompt of this.#prompts) {
      if (prompt.untilMs <= nowMs || prompt.space !== space) continue;
      const shared = sharedTokens(prompt.tokens, tokens);
      const matched = shared - (shared % blockSize);
      if (prompt.computed && matched > 0 && matched <= indexed && shared + blockSize > prompt.tokens.length) this.remove(prompt);
      if (matched <= Math.max(indexed, prompt.indexed)) continue;
      if (prompt.computed) certain = Math.max(certain, matched);
      all = Math.max(all, matched);
    }
    return { certain, uncertain: Math.max(0, all - certain) };
  }
}

function sharedTokens(one: Uint32Array, other: Uint32Array): number {
  const most = Math.min(one.length, other.length);
  let at = 0;
  while (at < most && one[at] === other[at]) at++;
  return at;
}
