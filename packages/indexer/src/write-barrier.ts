// While another thread reads the whole index (a snapshot, digests), nothing may change in it: batches wait, queries are answered.
import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";

export class WriteBarrier {
  /** Until nothing is read any more; undefined while all may change. Look again after waiting: another read may have begun. */
  over: Promise<void> | undefined;
  /** What a read waits for: a batch that is half applied. */
  before: () => Promise<void> | undefined = () => undefined;
  #turn: Promise<void> = Promise.resolve();

  /** One read at a time, and after each what waited gets as long as it took: readers that come all the time starve nobody. */
  during<T>(read: () => Promise<T>): Promise<T> {
    const former = this.#turn;
    const { promise: turn, resolve: pass } = Promise.withResolvers<void>();
    this.#turn = turn;
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

  /** To be called right before a change, which must follow without another wait. */
  async wait(): Promise<void> {
    while (this.over !== undefined) await this.over;
  }
}
