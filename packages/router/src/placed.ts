// One request on one engine, from its choice to its end.
import type { Engine } from "./engine.ts";
import type { RecentPrompt } from "./recent-prompts.ts";

export type Considered = { readonly engine: string; readonly seconds?: number; readonly expectedCachedTokens?: number; readonly because: string };

/** One request on one engine, counted there until `end`. */
export class Placed {
  readonly engine: Engine;
  /** The engine that computes the prompt for it, where the two are a pair. */
  prefill: Placed | undefined;
  /** Every engine with its cost, or why it was left out. Empty unless `place` was called with `explains`. */
  readonly considered: readonly Considered[];
  readonly #expectedCached: number | undefined;
  readonly #left: number;
  readonly #recent: RecentPrompt | undefined;
  #state: "waiting" | "answering" | "over" = "waiting";

  constructor(engine: Engine, expectedCached: number | undefined, left: number, recent: RecentPrompt | undefined, considered: readonly Considered[]) {
    this.engine = engine;
    this.#expectedCached = expectedCached;
    this.considered = considered;
    this.#left = left;
    this.#recent = recent;
    engine.inFlight++;
    engine.waiting++;
    engine.waitingTokens += left;
  }

  /** On the engine that computes the prompt. Undefined where the prompt's tokens are not known. */
  get expectedCached(): number | undefined {
    return this.prefill === undefined ? this.#expectedCached : this.prefill.expectedCached;
  }

  /** The first answer byte came: the prompt has been computed. */
  answered(): void {
    if (this.#state !== "waiting") return;
    this.#state = "answering";
    this.#prefilled();
    if (this.#recent !== undefined) this.#recent.computed = true;
  }

  end(): void {
    this.prefill?.end();
    if (this.#state === "over") return;
    if (this.#state === "waiting") {
      this.#prefilled();
      if (this.#recent !== undefined) this.engine.recent.remove(this.#recent);
    }
    this.#state = "over";
    this.engine.inFlight--;
  }

  #prefilled(): void {
    this.engine.waiting--;
    this.engine.waitingTokens = Math.max(0, this.engine.waitingTokens - this.#left);
  }
}
