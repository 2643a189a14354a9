// Limits the bytes per second from one source by delaying reads, so that backpressure reaches the sender and nothing is lost.

/** Seconds of the rate that may pass at once. */
const BURST_SECONDS = 4;
/** Shorter waits would only cost timers. */
const MIN_WAIT_MS = 10;

export class Pace {
  readonly #bytesPerSecond: number;
  #spare: number;
  #atMs: number;

  constructor(bytesPerSecond: number, nowMs: number) {
    this.#bytesPerSecond = bytesPerSecond;
    this.#spare = bytesPerSecond * BURST_SECONDS;
    this.#atMs = nowMs;
  }

  /** Counts received bytes, and returns for how long nothing more may be read; 0 means no wait. */
  take(bytes: number, nowMs: number): number {
    const earned = (Math.max(0, nowMs - this.#atMs) / 1000) * this.#bytesPerSecond;
    this.#atMs = nowMs;
    this.#spare = Math.min(this.#bytesPerSecond * BURST_SECONDS, this.#spare + earned) - bytes;
    const waitMs = (-this.#spare / this.#bytesPerSecond) * 1000;
    return waitMs < MIN_WAIT_MS ? 0 : waitMs;
  }
}
