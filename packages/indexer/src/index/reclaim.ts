// Frees cleared blocks, a few at a time between other work: a clear only changes sets, and leaves the blocks to this.
import type { Intake } from "./intake.ts";
import type { NativeIndex } from "./native.ts";

/** The number of blocks per step: a fifth of a millisecond if all of them are freed. */
const STEP_BLOCKS = 1 << 12;
/** The name under which the intake schedules this work. */
const PEER = "reclaim";

export class Reclaimer {
  readonly #index: NativeIndex;
  readonly #intake: Intake;
  #running = false;

  constructor(index: NativeIndex, intake: Intake) {
    this.#index = index;
    this.#intake = intake;
  }

  /** Call this after every clear. */
  begin(): void {
    if (this.#running) return;
    this.#running = true;
    void this.#run();
  }

  async #run(): Promise<void> {
    for (let more = true; more; ) {
      await this.#intake.enter(PEER);
      await this.#intake.run(PEER, () => {
        // `#running` is set within the step, so that a clear after the last step starts a new run.
        this.#running = more = this.#index.reclaim(STEP_BLOCKS) === 1;
      });
    }
  }
}
