// Admission of creates: a few at once, a bounded line behind them, 429 past that.
import { Failure } from "@svc/contract/failures.ts";

export interface Gate {
  /** Runs `work` when its turn comes. @throws TOO_MANY_REQUESTS when the line is full, TIMED_OUT when the turn does not come. */
  run<T>(work: () => Promise<T>): Promise<T>;
  readonly waiting: number;
  readonly running: number;
}

type Waiter = { resolve: () => void; reject: (error: Failure) => void; timer: NodeJS.Timeout };

export function openGate(concurrency: number, queueLength: number, waitMs: number): Gate {
  let running = 0;
  const line = new Set<Waiter>();

  function turn(): Promise<void> {
    if (running < concurrency) {
      running++;
      return Promise.resolve();
    }
    if (line.size >= queueLength) {
      throw new Failure("TOO_MANY_REQUESTS", `${line.size} creates are waiting already; try again later`, { retryAfterSeconds: 1 });
    }
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        line.delete(waiter);
        reject(new Failure("TIMED_OUT", `no turn came within ${waitMs} ms; ${line.size} creates are waiting`, { retryAfterSeconds: 1 }));
      }, waitMs);
      const waiter: Waiter = { resolve, reject, timer };
      line.add(waiter);
    });
  }

  function pass(): void {
    const next = line.values().next().value;
    if (next === undefined) {
      running--;
      return;
    }
    // The place is handed over, so `running` stays.
    line.delete(next);
    clearTimeout(next.timer);
    next.resolve();
  }

  return {
    async run(work) {
      await turn();
      try {
        return await work();
      } finally {
        pass();
      }
    },
    get waiting() {
      return line.size;
    },
    get running() {
      return running;
    },
  };
}
