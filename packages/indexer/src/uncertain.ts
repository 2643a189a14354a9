// Blocks that a loss may have taken are answered as uncertain for a while; whatever nothing has proven until then is dropped.
import type { Intake } from "./intake.ts";
import { type NativeIndex, UNCERTAIN } from "./native.ts";
import type { Reclaimer } from "./reclaim.ts";

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
    // What is uncertain in a snapshot has its time again.
    if ((options.index.lacks(of.id) & UNCERTAIN) !== 0) this.begin();
  }

  /** A loss: the time runs from the first one, so that losses that follow each other keep nothing longer. */
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
