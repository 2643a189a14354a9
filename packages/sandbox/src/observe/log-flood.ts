// Limits the rate of one kind of a sandbox's log entries: a burst, then a number per second; suppressed entries are counted.
import { type Rate, TokenBucket } from "@svc/kit/token-bucket.ts";

export type FloodLimits = Rate;

/** The minimum interval between two summaries of a flood. */
const SUMMARY_MS = 5_000;

export class FloodGate {
  readonly #bucket: TokenBucket;
  #suppressed = 0;
  #summaryAtMs = Number.NEGATIVE_INFINITY;

  constructor(limits: FloodLimits, nowMs: number) {
    this.#bucket = new TokenBucket(limits, nowMs);
  }

  /** Returns true if one more entry may be written. */
  take(nowMs: number): boolean {
    if (this.#bucket.take(nowMs)) return true;
    this.#suppressed++;
    return false;
  }

  get isSuppressing(): boolean {
    return this.#suppressed > 0;
  }

  /** Returns the number of entries suppressed since the last summary; 0 if it is too early for another one. */
  summary(nowMs: number, atOnce = false): number {
    if (this.#suppressed === 0 || (!atOnce && nowMs - this.#summaryAtMs < SUMMARY_MS)) return 0;
    const count = this.#suppressed;
    this.#suppressed = 0;
    this.#summaryAtMs = nowMs;
    return count;
  }
}
