// Requests a replay from a publisher that is quiet, at growing intervals, since a lost last message leaves no gap after it. A publisher
// whose stream needs verification is asked as well, even if it is not quiet.

/** The longest interval between two requests. */
const MAX_QUIET_MS = 60_000;

/** An interval that grows with each request and can be reset. */
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

  /** Returns whether the interval is over; if so, a longer one begins. */
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
