// The generations of a publisher's blocks in the index: the current one and, while a store repeats everything, the former one.
//
//   one ──reread──▶ two: the former one is served next to what came so far ──complete, lost or restarted──▶ one
//
// Both generations are subscriptions of the index with the same names, so an answer is their union: a known block that the store repeats is
// never missing in between. The union may also have a block that is gone, so it is not reported as complete until the reread ends.
import type { NativeIndex, NativeSubscription } from "./native.ts";
import type { Reclaimer } from "./reclaim.ts";

export type GenerationsOptions = {
  readonly index: Pick<NativeIndex, "subscribe" | "unsubscribe" | "clear">;
  readonly reclaimer: Pick<Reclaimer, "begin">;
  /** The subscription as the index knows it. */
  readonly description: NativeSubscription;
};

export class Generations {
  id: number;
  former: number | undefined;
  readonly #options: GenerationsOptions;

  constructor(options: GenerationsOptions, id: number, former: number | undefined) {
    this.#options = options;
    this.id = id;
    this.former = former;
  }

  /** The subscriptions in the index: the current generation, then the former one. */
  get ids(): number[] {
    return this.former === undefined ? [this.id] : [this.id, this.former];
  }

  /** Begins a new generation. If a reread is already under way, its partial generation is cleared. */
  reread(): void {
    if (this.former === undefined) {
      this.former = this.id;
      this.id = this.#options.index.subscribe(this.#options.description);
      return;
    }
    this.#options.index.clear(this.id);
    this.#options.reclaimer.begin();
  }

  /** Drops the former generation from answers. */
  settle(): void {
    if (this.former === undefined) return;
    this.#options.index.unsubscribe(this.former);
    this.former = undefined;
    this.#options.reclaimer.begin();
  }

  clear(): void {
    this.settle();
    this.#options.index.clear(this.id);
    this.#options.reclaimer.begin();
  }

  end(): void {
    this.settle();
    this.#options.index.unsubscribe(this.id);
    this.#options.reclaimer.begin();
  }
}
