// A lost last message leaves no gap behind it: a publisher that is quiet is asked for a replay, after ever longer times while it stays so.
// One whose replay has to prove something is asked as well, quiet or not.

/** Between two questions. */
const MAX_QUIET_MS = 60_000;

/** A time that grows while questions follow each other, and begins anew. */
class Pause {
  readonly #firstMs: number;
  #afterMs: number;
  #sinceMs = performance.now();

  constructor(firstMs: number) {
    this.#firstMs = this.#afterMs = firstMs;
  }

  begin(): void {
    this.#sinceMs = performance.now();
    this.#afterMs = this.#firstMs;
  }

  /** Whether it is over; then a longer one begins. */
  isOver(): boolean {
    if (performance.now() - this.#sinceMs < this.#afterMs) return false;
    this.#afterMs = Math.min(this.#afterMs * 4, Math.max(MAX_QUIET_MS, this.#firstMs));
    this.#sinceMs = performance.now();
    return true;
  }
}

export class Quiet {
  #timer: NodeJS.Timeout | undefined;
  #silence: Pause | undefined;

  watch(firstMs: number, isUnproven: () => boolean, ask: () => void): void {
    const silence = (this.#silence = new Pause(firstMs));
    const verification = new Pause(firstMs);
    this.#timer = setInterval(
      () => {
        if (!isUnproven()) verification.begin();
        if (silence.isOver() || verification.isOver()) ask();
      },
      Math.max(50, firstMs / 4),
    );
  }

  spoke(): void {
    this.#silence?.begin();
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
