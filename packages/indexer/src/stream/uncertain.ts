// Answers blocks that a loss may have affected as uncertain for a while; those that no event has confirmed by then are dropped.
import type { Intake } from "../index/intake.ts";
import { type NativeIndex, UNCERTAIN } from "../index/native.ts";
import type { Reclaimer } from "../index/reclaim.ts";

export type UncertainOptions = {
  readonly index: Pick<NativeIndex, "lacks" | "forgetUncertain">;
  readonly intake: Pick<Intake, "run">;
  readonly reclaimer: Pick<Reclaimer, "begin">;
  readonly uncertainMs: number;
};

export class Uncertain {
  readonly #of: { readonly id: number; readonly key: string };
  readonly #options: UncertainOptions;
  readonly #signal: AbortSignal;
  #timer: NodeJS.Timeout | undefined;

  constructor(of: { readonly id: number; readonly key: string }, options: UncertainOptions, signal: AbortSignal) {
    this.#of = of;
    this.#options = options;
    this.#signal = signal;
    signal.addEventListener("abort", () => clearTimeout(this.#timer), { once: true });
    // Uncertain blocks of a snapshot get the whole time again.
    if ((options.index.lacks(of.id) & UNCERTAIN) !== 0) this.begin();
  }

  /** Starts the timer at the first loss, so that losses in a row do not keep the blocks longer. */
  begin(): void {
    if (this.#signal.aborted) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.#options.intake.run(this.#of.key, () => this.#forget());
    }, this.#options.uncertainMs).unref();
  }

  #forget(): void {
    if (this.#signal.aborted) return;
    this.#options.index.forgetUncertain(this.#of.id);
    this.#options.reclaimer.begin();
  }
}
