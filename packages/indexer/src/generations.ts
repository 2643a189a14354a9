// A publisher's blocks in the index: those of the order that is followed, and, while a store tells all anew, the former ones.
//
//   one ──reread──▶ two: former ones are answered beside those that came so far ──whole, lost or begun anew──▶ one
//
// Both are subscriptions of the index with the same names, so an answer is what either holds: a block that was known and is told again is
// never missing in between. It may have one that is gone as well, and is not said to be complete until then.
import type { NativeIndex, NativeSubscription } from "./native.ts";
import type { Reclaimer } from "./reclaim.ts";

export type GenerationsOptions = {
  readonly index: Pick<NativeIndex, "subscribe" | "unsubscribe" | "clear">;
  readonly reclaimer: Pick<Reclaimer, "begin">;
  /** As the index knows it. */
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

  /** In the index: the one that is followed, and the former one. */
  get ids(): number[] {
    return this.former === undefined ? [this.id] : [this.id, this.former];
  }

  /** All is told anew. Of a reread that did not come to its end nothing stays. */
  reread(): void {
    if (this.former === undefined) {
      this.former = this.id;
      this.id = this.#options.index.subscribe(this.#options.description);
      return;
    }
    this.#options.index.clear(this.id);
    this.#options.reclaimer.begin();
  }

  /** The former blocks are not answered any more. */
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
