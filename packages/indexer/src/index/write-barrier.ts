// Keeps the index unchanged while another thread reads all of it (a snapshot, digests): batches wait, queries are answered.
import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";

export class WriteBarrier {
  /** Resolves when the current read ends; undefined while changes are allowed. Check again after waiting, since another read may have begun. */
  over: Promise<void> | undefined;
  /** Returns what a read must wait for: a batch that is half applied. */
  before: () => Promise<void> | undefined = () => undefined;
  #last: Promise<void> = Promise.resolve();

  /** Runs one read at a time. After each, changes get as much time as the read took, so that a steady flow of readers starves no writer. */
  during<T>(read: () => Promise<T>): Promise<T> {
    const former = this.#last;
    const { promise: ended, resolve: pass } = Promise.withResolvers<void>();
    this.#last = ended;
    return former.then(async () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      for (let half = this.before(); half !== undefined; half = this.before()) await half.catch(() => {});
      const started = performance.now();
      this.over = promise;
      try {
        return await read();
      } finally {
        this.over = undefined;
        resolve();
        void delay(performance.now() - started).then(pass);
      }
    });
  }

  /** Await this right before a change, which must follow without another await. */
  async wait(): Promise<void> {
    while (this.over !== undefined) await this.over;
  }
}
