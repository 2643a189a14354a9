// Whether a replay has shown that what is held is what the present publisher said, and all of it. Until then a stream is not complete.
//
//   snapshot, reconnect, batches that nothing compares ──▶ wanted ──a replay that has the last batch known──▶ given
//   another process publishes                          ──▶ wanted ──a replay of all from the first batch────▶ given

export class Verification {
  #required = 0;
  #requiredOfAll = 0;
  #confirmed = 0;

  get missing(): boolean {
    return this.#confirmed < this.#required;
  }

  /** Only a replay from the first batch on proves it: batches of two processes may lie behind each other. */
  get isOfAll(): boolean {
    return this.#confirmed < this.#requiredOfAll;
  }

  /** What a replay that is requested now can prove. */
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
