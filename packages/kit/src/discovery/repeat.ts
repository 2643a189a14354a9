// Repeats an action with pauses until it is closed.

export class Repeat {
  readonly signal: AbortSignal;
  readonly #stopped = new AbortController();
  readonly #running: Promise<void>;

  /** `act` returns the pause until the next call, in milliseconds; it must not throw. */
  constructor(act: (signal: AbortSignal) => Promise<number>) {
    this.signal = this.#stopped.signal;
    this.#running = this.#run(act);
  }

  async close(): Promise<void> {
    this.#stopped.abort();
    await this.#running;
  }

  async #run(act: (signal: AbortSignal) => Promise<number>): Promise<void> {
    // The first call comes in a later microtask, so that the caller can store the new object before `act` uses it.
    await Promise.resolve();
    while (!this.signal.aborted) await this.#pause(await act(this.signal));
  }

  #pause(ms: number): Promise<void> {
    if (this.signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.signal.removeEventListener("abort", done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      this.signal.addEventListener("abort", done, { once: true });
    });
  }
}
