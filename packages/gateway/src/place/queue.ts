// The admission queue: creates that wait while every node is full, first in, first out, with bounds on their number and their wait.

export type QueueLimits = { readonly length: number; readonly waitMs: number };

/** A queued create; `wake` is called once, with true to try again or false when its time is over. */
type Waiter = { readonly sinceMs: number; readonly wake: (mayTry: boolean) => void };

/** Admissions within this window give the estimate of the wait. */
const RATE_WINDOW_MS = 10_000;
const MAX_ADMISSIONS = 1_024;

export class AdmissionQueue {
  readonly #limits: QueueLimits;
  readonly #nowMs: () => number;
  #waiters: Waiter[] = [];
  /** Times at which queued creates were placed. */
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

  /** The estimated wait of a new create, from the recent rate of admissions; the longest wait if there were none. */
  get estimatedWaitMs(): number {
    const since = this.#nowMs() - RATE_WINDOW_MS;
    const recent = this.#admitted.filter((atMs) => atMs >= since).length;
    if (recent === 0) return this.#limits.waitMs;
    return Math.min(this.#limits.waitMs, ((this.#waiters.length + 1) / recent) * RATE_WINDOW_MS);
  }

  /**
   * Resolves with true when the create may try again, with false when its time is over. A create that comes back passes the `sinceMs` of its first
   * wait and so keeps its position.
   */
  wait(sinceMs: number): Promise<boolean> {
    return new Promise((wake) => {
      const waiter: Waiter = { sinceMs, wake };
      const at = this.#waiters.findIndex((each) => each.sinceMs > sinceMs);
      if (at < 0) this.#waiters.push(waiter);
      else this.#waiters.splice(at, 0, waiter);
    });
  }

  /** Counts a placed create that had waited. */
  admitted(): void {
    this.#admitted.push(this.#nowMs());
    if (this.#admitted.length > MAX_ADMISSIONS) this.#admitted = this.#admitted.slice(-MAX_ADMISSIONS / 2);
  }

  /** Wakes as many creates as capacity may have been freed for, oldest first. */
  release(count: number): void {
    for (const { wake } of this.#waiters.splice(0, count)) wake(true);
  }

  /** Wakes the creates whose time is over. */
  expire(): void {
    const before = this.#nowMs() - this.#limits.waitMs;
    const over = this.#waiters.filter(({ sinceMs }) => sinceMs <= before);
    if (over.length === 0) return;
    this.#waiters = this.#waiters.filter(({ sinceMs }) => sinceMs > before);
    for (const { wake } of over) wake(false);
  }

  /** Wakes all creates with false, because the gateway stops. */
  close(): void {
    for (const { wake } of this.#waiters.splice(0)) wake(false);
  }
}
