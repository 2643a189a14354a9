// Asks object storage again when it did not answer, or answered that it cannot just now; and gives up in the end.
import { setTimeout as sleep } from "node:timers/promises";
import { asFailure, Failure } from "@svc/contract/failures.ts";

export const ATTEMPTS = 6;
const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 5_000;

/** What another attempt may change. */
export class Unanswered extends Error {}

/** @throws OBJECTS_UNAVAILABLE with what the last attempt said; anything but Unanswered at once. */
export async function retried<T>(what: string, attempt: () => Promise<T>, attempts = ATTEMPTS): Promise<T> {
  for (let number = 1; ; number++) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof Unanswered)) throw error;
      if (number >= attempts) throw new Failure("OBJECTS_UNAVAILABLE", `${what}: ${error.message} (${attempts} attempts)`, { cause: asFailure(error).cause });
      // With a random part: many that were turned away together do not come back together.
      await sleep(Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** (number - 1)) * (0.5 + Math.random()));
    }
  }
}
