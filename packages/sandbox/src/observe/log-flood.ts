// Bounds how much of one kind a sandbox may log: a burst, then so many a second; what is left out is counted.
import { type Rate, TokenBucket } from "@svc/kit/token-bucket.ts";

export type FloodLimits = Rate;

/** A flood is told of at most this often. */
const SUMMARY_MS = 5_000;

export class FloodGate {
  readonly #bucket: TokenBucket;
  #suppressed = 0;
  #toldAtMs = Number.NEGATIVE_INFINITY;

  constructor(limits: FloodLimits, nowMs: number) {
    this.#bucket = new TokenBucket(limits, nowMs);
  }

  /** Whether one more may be written. */
  take(nowMs: number): boolean {
    if (this.#bucket.take(nowMs)) return true;
    this.#suppressed++;
    return false;
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
