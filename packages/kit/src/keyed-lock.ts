// A keyed lock: work under one key runs one after another in the order of the calls; work under other keys does not wait.
import { Failure } from "@svc/contract/failures.ts";

export interface KeyedLock {
  /** Runs `work` after all earlier work under this key. @throws TOO_MANY_REQUESTS if too much work is waiting. */
  run<T>(key: string, work: () => Promise<T>): Promise<T>;
  /** Like `run`, but exempt from the limit: for work that occurs once per key, such as its removal. */
  runUnbounded<T>(key: string, work: () => Promise<T>): Promise<T>;
  /** Returns whether work under this key is running or waiting; if not, the next call runs at once. */
  isHeld(key: string): boolean;
}

/** `subject` names a key in the refusal: "sandbox" gives "sandbox 'i123'". */
export function openKeyedLock(subject: string, maxWaiting: number): KeyedLock {
  const holders = new Map<string, { last: Promise<unknown>; waiting: number }>();

  async function runUnbounded<T>(key: string, work: () => Promise<T>): Promise<T> {
    const holder = holders.get(key) ?? { last: Promise.resolve(), waiting: 0 };
    holders.set(key, holder);
    holder.waiting++;
    const mine = holder.last.then(work, work);
    holder.last = mine;
    try {
      return await mine;
    } finally {
      holder.waiting--;
      if (holder.waiting === 0) holders.delete(key);
    }
  }

  return {
    runUnbounded,
    isHeld: (key) => holders.has(key),
    async run(key, work) {
      const waiting = holders.get(key)?.waiting ?? 0;
      if (waiting >= maxWaiting) {
        throw new Failure("TOO_MANY_REQUESTS", `${waiting} requests for ${subject} '${key}' are pending; the maximum is ${maxWaiting}, try again later`, {
          retryAfterSeconds: 1,
        });
      }
      return runUnbounded(key, work);
    },
  };
}
