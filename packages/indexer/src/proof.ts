// Whether a replay has shown that what is held is what the present publisher said, and all of it. Until then a stream is not complete.
//
//   snapshot, reconnect, batches that nothing compares ──▶ wanted ──a replay that has the last batch known──▶ given
//   another process publishes                          ──▶ wanted ──a replay of all from the first batch────▶ given

export class Proof {
  #wanted = 0;
  #wantedOfAll = 0;
  #given = 0;

  get missing(): boolean {
    return this.#given < this.#wanted;
  }

  /** Only a replay from the first batch on proves it: batches of two processes may lie behind each other. */
  get isOfAll(): boolean {
    return this.#given < this.#wantedOfAll;
  }

  /** What a replay that is requested now can prove. */
  get mark(): number {
    return this.#wanted;
  }

  want({ ofAll = false } = {}): void {
    this.#wanted++;
    if (ofAll) this.#wantedOfAll = this.#wanted;
  }

  give(mark = this.#wanted): void {
    this.#given = Math.max(this.#given, mark);
  }
}
