// Frees the blocks of what was cleared, a slice at a time between other work: clearing itself is a matter of sets, not of blocks.
import type { NativeIndex } from "./native.ts";
import type { Stillness } from "./stillness.ts";

/** Looked at in one go: some milliseconds where all of them are freed. */
const SLICE_BLOCKS = 1 << 14;

export class Reclaimer {
  readonly #index: NativeIndex;
  readonly #stillness: Stillness;
  #running = false;

  constructor(index: NativeIndex, stillness: Stillness) {
    this.#index = index;
    this.#stillness = stillness;
  }

  /** To be told of after every clear. */
  begin(): void {
    if (this.#running) return;
    this.#running = true;
    const step = (): void => {
      if (this.#stillness.over !== undefined) void this.#stillness.over.then(step);
      else if (this.#index.reclaim(SLICE_BLOCKS) === 1) setImmediate(step);
      else this.#running = false;
    };
    setImmediate(step);
  }
}
