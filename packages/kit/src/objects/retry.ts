// Retries a request to object storage that got no answer or a temporary refusal, up to a limit.
import { setTimeout as sleep } from "node:timers/promises";
import { asFailure, Failure } from "@svc/contract/failures.ts";

export const ATTEMPTS = 6;
const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 5_000;

/** An outcome that another attempt may change. */
export class Unanswered extends Error {}

/** @throws OBJECTS_UNAVAILABLE with the last attempt's message; any error other than Unanswered is thrown at once. */
export async function retried<T>(what: string, attempt: () => Promise<T>, attempts = ATTEMPTS): Promise<T> {
  for (let number = 1; ; number++) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof Unanswered)) throw error;
      if (number >= attempts) throw new Failure("OBJECTS_UNAVAILABLE", `${what}: ${error.message} (${attempts} attempts)`, { cause: asFailure(error).cause });
      // The random factor prevents clients that were refused together from returning together.
      await sleep(Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** (number - 1)) * (0.5 + Math.random()));
    }
  }
}
