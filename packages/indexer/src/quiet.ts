// A lost last message leaves no gap behind it: a publisher that is quiet is asked for a replay, after ever longer times while it stays so.

/** Between two questions. */
const MAX_QUIET_MS = 60_000;

export class Quiet {
  #timer: NodeJS.Timeout | undefined;
  #firstMs = 0;
  #afterMs = 0;
  #sinceMs = performance.now();

  watch(firstMs: number, ask: () => void): void {
    this.#firstMs = this.#afterMs = firstMs;
    this.#timer = setInterval(
      () => {
        if (performance.now() - this.#sinceMs < this.#afterMs) return;
        this.#afterMs = Math.min(this.#afterMs * 4, Math.max(MAX_QUIET_MS, firstMs));
        this.#sinceMs = performance.now();
        ask();
      },
      Math.max(50, firstMs / 4),
    );
  }

  spoke(): void {
    this.#sinceMs = performance.now();
    this.#afterMs = this.#firstMs;
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
