// Bounds how much of one kind a sandbox may log: a burst, then so many a second; what is left out is counted.

export type FloodLimits = { readonly burst: number; readonly perSecond: number };

/** A flood is told of at most this often. */
const SUMMARY_MS = 5_000;

export class FloodGate {
  readonly #limits: FloodLimits;
  #tokens: number;
  #atMs: number;
  #suppressed = 0;
  #toldAtMs = Number.NEGATIVE_INFINITY;

  constructor(limits: FloodLimits, nowMs: number) {
    this.#limits = limits;
    this.#tokens = limits.burst;
    this.#atMs = nowMs;
  }

  /** Whether one more may be written. */
  take(nowMs: number): boolean {
    const { burst, perSecond } = this.#limits;
    this.#tokens = Math.min(burst, this.#tokens + (Math.max(0, nowMs - this.#atMs) / 1000) * perSecond);
    this.#atMs = nowMs;
    if (this.#tokens < 1) {
      this.#suppressed++;
      return false;
    }
    this.#tokens--;
    return true;
  }

  get isSuppressing(): boolean {
    return this.#suppressed > 0;
  }

  /** How many were left out since this last said so; 0 also where it is too early to say it again. */
  summary(nowMs: number, atOnce = false): number {
    if (this.#suppressed === 0 || (!atOnce && nowMs - this.#toldAtMs < SUMMARY_MS)) return 0;
    const count = this.#suppressed;
    this.#suppressed = 0;
    this.#toldAtMs = nowMs;
    return count;
  }
}
