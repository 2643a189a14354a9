// How many bytes a second may come from one place: who takes more waits, so that the sender waits in turn and nothing is lost.

/** A burst passes at once: so many seconds' worth. */
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

  /** Notes bytes that have come, and says how long nothing more may be read; 0: go on. */
  take(bytes: number, nowMs: number): number {
    const earned = (Math.max(0, nowMs - this.#atMs) / 1000) * this.#bytesPerSecond;
    this.#atMs = nowMs;
    this.#spare = Math.min(this.#bytesPerSecond * BURST_SECONDS, this.#spare + earned) - bytes;
    const waitMs = (-this.#spare / this.#bytesPerSecond) * 1000;
    return waitMs < MIN_WAIT_MS ? 0 : waitMs;
  }
}
