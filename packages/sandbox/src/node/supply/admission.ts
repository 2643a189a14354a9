// Admission of starts: a few at once, a bounded queue behind them, and 429 beyond that.
import { Failure } from "@svc/contract/failures.ts";
import { Semaphore } from "@svc/kit/semaphore.ts";

export interface Admission {
  /** Runs `work` once it is admitted. @throws TOO_MANY_REQUESTS when the queue is full, TIMED_OUT when it is not admitted in time. */
  run<T>(work: () => Promise<T>): Promise<T>;
  readonly waiting: number;
  readonly running: number;
}

export function openAdmission(concurrency: number, queueLength: number, waitMs: number): Admission {
  const starts = new Semaphore(concurrency);
  const later = { retryAfterSeconds: 1 };
  return {
    async run(work) {
      if (starts.taken >= concurrency && starts.waiting >= queueLength)
        throw new Failure(
          "TOO_MANY_REQUESTS",
          `the maximum number of concurrent starts is pending, ${starts.waiting} (sandbox.start_queue); try again later`,
          later,
        );
      if (!(await starts.enter({ waitMs })))
        throw new Failure(
          "TIMED_OUT",
          `the start was not admitted within ${waitMs} ms (sandbox.start_timeout_seconds); ${starts.waiting} starts are waiting`,
          later,
        );
      try {
        return await work();
      } finally {
        starts.leave();
      }
    },
    get waiting() {
      return starts.waiting;
    },
    get running() {
      return starts.taken;
    },
  };
}
