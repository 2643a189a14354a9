// One thing at a time per sandbox: pause, resume, capture and end wait for each other instead of meeting half-way.
import { Failure } from "@svc/contract/failures.ts";

const MAX_WAITING_PER_SANDBOX = 64;

export interface Turns {
  /** Runs `work` when what was asked before of this sandbox is done. @throws TOO_MANY_REQUESTS when too many wait. */
  run<T>(sandboxID: string, work: () => Promise<T>): Promise<T>;
  /** As `run`, past the bound: for ends, which are asked once each. */
  runLast<T>(sandboxID: string, work: () => Promise<T>): Promise<T>;
}

export function openTurns(): Turns {
  const lines = new Map<string, { last: Promise<unknown>; waiting: number }>();

  async function runLast<T>(sandboxID: string, work: () => Promise<T>): Promise<T> {
    const line = lines.get(sandboxID) ?? { last: Promise.resolve(), waiting: 0 };
    lines.set(sandboxID, line);
    line.waiting++;
    const mine = line.last.then(work, work);
    line.last = mine;
    try {
      return await mine;
    } finally {
      line.waiting--;
      if (line.waiting === 0) lines.delete(sandboxID);
    }
  }

  return {
    runLast,
    async run(sandboxID, work) {
      const waiting = lines.get(sandboxID)?.waiting ?? 0;
      if (waiting >= MAX_WAITING_PER_SANDBOX) {
        throw new Failure("TOO_MANY_REQUESTS", `${waiting} requests wait for sandbox '${sandboxID}' already; try again later`, { retryAfterSeconds: 1 });
      }
      return runLast(sandboxID, work);
    },
  };
}
