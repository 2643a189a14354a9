// The admission queue: creates that wait while every node is full, first come first served, with a bound on their number and time.

export type QueueLimits = { readonly length: number; readonly waitMs: number };

/** A place in the queue; `wake` is called once: with true to try again, with false when its time is over. */
type Waiter = { readonly sinceMs: number; readonly wake: (mayTry: boolean) => void };

/** Admissions of the last seconds, from which the wait is estimated. */
const RATE_WINDOW_MS = 10_000;
const MAX_ADMISSIONS = 1_024;

export class AdmissionQueue {
  readonly #limits: QueueLimits;
  readonly #nowMs: () => number;
  #waiters: Waiter[] = [];
  /** When creates that had waited were placed. */
  #admitted: number[] = [];

  constructor(limits: QueueLimits, nowMs: () => number) {
    this.#limits = limits;
    this.#nowMs = nowMs;
  }

  get length(): number {
    return this.#waiters.length;
  }

  get isFull(): boolean {
    return this.#waiters.length >= this.#limits.length;
  }

  /** For one that comes now: by how fast the queue moved lately; its longest wait where it did not move. */
  get estimatedWaitMs(): number {
    const since = this.#nowMs() - RATE_WINDOW_MS;
    const recent = this.#admitted.filter((atMs) => atMs >= since).length;
    if (recent === 0) return this.#limits.waitMs;
    return Math.min(this.#limits.waitMs, ((this.#waiters.length + 1) / recent) * RATE_WINDOW_MS);
  }

  /** Until it may try again, or its time is over (false). `sinceMs`: of its first time here; then it goes back to its place. */
  wait(sinceMs: number): Promise<boolean> {
    return new Promise((wake) => {
      const waiter: Waiter = { sinceMs, wake };
      const at = this.#waiters.findIndex((each) => each.sinceMs > sinceMs);
      if (at < 0) this.#waiters.push(waiter);
      else this.#waiters.splice(at, 0, waiter);
    });
  }

  /** One that had waited was placed. */
  admitted(): void {
    this.#admitted.push(this.#nowMs());
    if (this.#admitted.length > MAX_ADMISSIONS) this.#admitted = this.#admitted.slice(-MAX_ADMISSIONS / 2);
  }

  /** Room may have come for so many: as many as that try again, oldest first. */
  release(places: number): void {
    for (const { wake } of this.#waiters.splice(0, places)) wake(true);
  }

  /** Lets those go whose time is over. */
  expire(): void {
    const before = this.#nowMs() - this.#limits.waitMs;
    const over = this.#waiters.filter(({ sinceMs }) => sinceMs <= before);
    if (over.length === 0) return;
    this.#waiters = this.#waiters.filter(({ sinceMs }) => sinceMs > before);
    for (const { wake } of over) wake(false);
  }

  /** Lets all go: the gateway stops. */
  close(): void {
    for (const { wake } of this.#waiters.splice(0)) wake(false);
  }
}
