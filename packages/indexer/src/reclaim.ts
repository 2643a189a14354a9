// Frees the blocks of what was cleared, a little at a time between other work: clearing itself is a matter of sets, not of blocks.
import type { Intake } from "./intake.ts";
import type { NativeIndex } from "./native.ts";

/** Looked at in one go: a fifth of a millisecond where all of them are freed. */
const STEP_BLOCKS = 1 << 12;
/** As a peer of the intake. */
const PEER = "reclaim";

export class Reclaimer {
  readonly #index: NativeIndex;
  readonly #intake: Intake;
  #running = false;

  constructor(index: NativeIndex, intake: Intake) {
    this.#index = index;
    this.#intake = intake;
  }

  /** To be told of after every clear. */
  begin(): void {
    if (this.#running) return;
    this.#running = true;
    void this.#run();
  }

  async #run(): Promise<void> {
    for (let more = true; more; ) {
      await this.#intake.enter(PEER);
      await this.#intake.run(PEER, () => {
        // Here, so that whoever clears next begins it anew.
        this.#running = more = this.#index.reclaim(STEP_BLOCKS) === 1;
      });
    }
  }
}
