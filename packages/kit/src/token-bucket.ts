// A rate limiter: tokens refill with time up to a burst, and each event takes one.

export type Rate = { readonly perSecond: number; readonly burst: number };

export class TokenBucket {
  readonly #rate: Rate;
  #tokens: number;
  #atMs: number;

  constructor(rate: Rate, nowMs: number) {
    this.#rate = rate;
    this.#tokens = rate.burst;
    this.#atMs = nowMs;
  }

  /** Takes a token; returns false if none is left. */
  take(nowMs: number): boolean {
    this.#refill(nowMs);
    if (this.#tokens < 1) return false;
    this.#tokens--;
    return true;
  }

  /** The time until a token is available; 0 if there is one now. */
  waitMs(nowMs: number): number {
    this.#refill(nowMs);
    return this.#tokens >= 1 ? 0 : ((1 - this.#tokens) / this.#rate.perSecond) * 1000;
  }

  #refill(nowMs: number): void {
    const { burst, perSecond } = this.#rate;
    this.#tokens = Math.min(burst, this.#tokens + (Math.max(0, nowMs - this.#atMs) / 1000) * perSecond);
    this.#atMs = nowMs;
  }
}
