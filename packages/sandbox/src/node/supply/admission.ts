// Admission of starts: a few at once, a bounded queue behind them, and 429 beyond that.
import { Failure } from "@svc/contract/failures.ts";

export interface Admission {
  /** Runs `work` once it is admitted. @throws TOO_MANY_REQUESTS when the queue is full, TIMED_OUT when it is not admitted in time. */
  run<T>(work: () => Promise<T>): Promise<T>;
  readonly waiting: number;
  readonly running: number;
}

type Waiter = { resolve: () => void; reject: (error: Failure) => void; timer: NodeJS.Timeout };

export function openAdmission(concurrency: number, queueLength: number, waitMs: number): Admission {
  let running = 0;
  const queue = new Set<Waiter>();

  function admitted(): Promise<void> {
    if (running < concurrency) {
      running++;
      return Promise.resolve();
    }
    if (queue.size >= queueLength) {
      throw new Failure("TOO_MANY_REQUESTS", `the maximum number of concurrent starts is pending, ${queue.size} (sandbox.start_queue); try again later`, {
        retryAfterSeconds: 1,
      });
    }
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        queue.delete(waiter);
        reject(
          new Failure("TIMED_OUT", `the start was not admitted within ${waitMs} ms (sandbox.start_timeout_seconds); ${queue.size} starts are waiting`, {
            retryAfterSeconds: 1,
          }),
        );
      }, waitMs);
      const waiter: Waiter = { resolve, reject, timer };
      queue.add(waiter);
    });
  }

  function release(): void {
    const next = queue.values().next().value;
    if (next === undefined) {
      running--;
      return;
    }
    // The released slot goes to the next waiter, so `running` stays the same.
    queue.delete(next);
    clearTimeout(next.timer);
    next.resolve();
  }

  return {
    async run(work) {
      await admitted();
      try {
        return await work();
      } finally {
        release();
      }
    },
    get waiting() {
      return queue.size;
    },
    get running() {
      return running;
    },
  };
}
