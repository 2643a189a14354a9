// Runs many small jobs in few program calls: jobs that arrive during a call share the next one.

type Waiting<T> = { item: T; resolve: () => void; reject: (error: unknown) => void };

export class Batcher<T> {
  readonly #run: (items: readonly T[]) => Promise<void>;
  readonly #maxItems: number;
  #waiting: Waiting<T>[] = [];
  #running: Promise<void> | undefined;

  constructor(maxItems: number, run: (items: readonly T[]) => Promise<void>) {
    this.#maxItems = maxItems;
    this.#run = run;
  }

  /** Resolves when the call that carried `item` has succeeded. The address block bounds the number of waiting items. */
  add(item: T): Promise<void> {
    const done = new Promise<void>((resolve, reject) => this.#waiting.push({ item, resolve, reject }));
    this.#running ??= this.#loop();
    return done;
  }

  /** Resolves when nothing is waiting or running. */
  async idle(): Promise<void> {
    while (this.#running !== undefined) await this.#running;
  }

  async #loop(): Promise<void> {
    // The loop waits one tick of the event loop, so that callers of the same moment share the first call.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#waiting.length > 0) await this.#runTogether(this.#waiting.splice(0, this.#maxItems));
    this.#running = undefined;
  }

  async #runTogether(batch: Waiting<T>[]): Promise<void> {
    try {
      await this.#run(batch.map(({ item }) => item));
      for (const { resolve } of batch) resolve();
    } catch (error) {
      const [only] = batch;
      if (batch.length === 1 && only !== undefined) return only.reject(error);
      // One bad item must not fail the others of its batch: each is run alone to find it.
      for (const single of batch) await this.#runTogether([single]);
    }
  }
}
