// Tracks whether a replay has confirmed that our state matches the current publisher completely. Until then a stream is not complete.
//
//   snapshot, reconnect, batches that cannot be compared ──▶ required ──a replay that has our last batch────────▶ confirmed
//   another process publishes                            ──▶ required ──a replay of all from the first batch──▶ confirmed

export class Verification {
  #required = 0;
  #requiredOfAll = 0;
  #confirmed = 0;

  get missing(): boolean {
    return this.#confirmed < this.#required;
  }

  /** True if only a replay from the first batch on suffices, since batches of two processes may follow each other. */
  get isOfAll(): boolean {
    return this.#confirmed < this.#requiredOfAll;
  }

  /** The requirements so far: a replay that is requested now can meet these. */
  get mark(): number {
    return this.#required;
  }

  require({ ofAll = false } = {}): void {
    this.#required++;
    if (ofAll) this.#requiredOfAll = this.#required;
  }

  confirm(mark = this.#required): void {
    this.#confirmed = Math.max(this.#confirmed, mark);
  }
}
