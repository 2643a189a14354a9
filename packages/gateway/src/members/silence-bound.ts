// How long a node may be silent before it counts as lost: the setting on a quiet machine, and longer where its recent messages came late.

/** A gap counts for this long, at least; then the bound shrinks again. */
const WINDOW_MS = 150_000;
/** One pause or two, as of a machine that was suspended, say nothing of the next message: the bound follows the third longest recent gap. */
const OUTLIERS = 2;
/** The bound is this many times that gap, because the next one may be longer. */
const MARGIN = 3;
/** A stopped node must be noticed at some time, however late its messages were before. In multiples of the setting. */
const MOST = 10;

export class SilenceBound {
  readonly #leastMs: number;
  #heardAtMs: number | undefined;
  #windowEndsMs = Number.NEGATIVE_INFINITY;
  /** The longest gaps of this window and of the one before, each in descending order. */
  #longestMs: readonly number[] = [];
  #longestBeforeMs: readonly number[] = [];

  constructor(leastMs: number) {
    this.#leastMs = leastMs;
  }

  /** In milliseconds. */
  get ms(): number {
    const gapMs = longestOf([...this.#longestMs, ...this.#longestBeforeMs])[OUTLIERS] ?? 0;
    return Math.min(MOST * this.#leastMs, Math.max(this.#leastMs, Math.ceil(MARGIN * gapMs)));
  }

  /** Notes a message. `lateMs` of the gap before it are this process's own fault, and say nothing of the node. */
  heard(nowMs: number, lateMs = 0): void {
    if (nowMs >= this.#windowEndsMs) {
      this.#longestBeforeMs = nowMs < this.#windowEndsMs + WINDOW_MS ? this.#longestMs : [];
      this.#longestMs = [];
      this.#windowEndsMs = nowMs + WINDOW_MS;
    }
    const gapMs = this.#heardAtMs === undefined ? 0 : nowMs - this.#heardAtMs - lateMs;
    if (gapMs > (this.#longestMs[OUTLIERS] ?? 0)) this.#longestMs = longestOf([...this.#longestMs, gapMs]);
    this.#heardAtMs = nowMs;
  }

  /** The next gap is not one between two messages, for instance because the node was started again. */
  interrupted(): void {
    this.#heardAtMs = undefined;
  }
}

const longestOf = (gapsMs: readonly number[]): number[] => gapsMs.toSorted((one, other) => other - one).slice(0, OUTLIERS + 1);
