// What changes the index comes through here: in slices of the event loop's turns, one batch after the other, never while the index is read.
import { setImmediate as turn } from "node:timers/promises";
import type { WaitingRoom } from "./order.ts";
import type { Stillness } from "./stillness.ts";
import { Turns } from "./turns.ts";

/** Of each turn of the event loop; queries have what is between. */
const SLICE_MS = 2;

export class Intake {
  readonly stillness: Stillness;
  readonly room: WaitingRoom;
  readonly #turns = new Turns(SLICE_MS);
  /** Until a batch that is applied in slices is there wholly. */
  #unfinished: Promise<void> | undefined;

  constructor(stillness: Stillness, room: WaitingRoom) {
    this.stillness = stillness;
    this.room = room;
    stillness.before = () => this.#unfinished;
  }

  /** Runs `work` now, or when its turn comes; undefined when it ran at once. */
  run(peer: string, work: () => void): Promise<void> | undefined {
    if (this.#unfinished === undefined && this.stillness.over === undefined && this.#turns.open) {
      work();
      return undefined;
    }
    return this.#later(peer, work);
  }

  /** `step` goes on with a batch that is larger than a slice, until it says false; everything else waits for it. */
  goOn(step: () => boolean): void {
    this.#unfinished = this.#steps(step).finally(() => {
      this.#unfinished = undefined;
    });
    // Whoever waits for it goes on either way.
    this.#unfinished.catch(() => {});
  }

  async #steps(step: () => boolean): Promise<void> {
    for (let more = true; more; ) {
      await turn();
      const endsMs = performance.now() + SLICE_MS;
      while (more && performance.now() < endsMs) more = step();
    }
  }

  async #later(peer: string, work: () => void): Promise<void> {
    for (;;) {
      if (this.#unfinished !== undefined) await this.#unfinished.catch(() => {});
      await this.stillness.wait();
      const ran = await this.#turns.run(peer, () => {
        if (this.#unfinished !== undefined || this.stillness.over !== undefined) return false;
        work();
        return true;
      });
      if (ran) return;
    }
  }
}
