// A client's deadline, by its header `x-request-timeout`: it bounds the wait for tokens, in the queue, and for the engine.
import type { RequestHeaders } from "./client/request.ts";
import type { Ending } from "./ending.ts";
import { Refusal } from "./refusals.ts";

/** Seconds from the request's arrival to the last byte of its answer. Engines get what is left of them. */
export const DEADLINE_HEADER = "x-request-timeout";
const MOST_SECONDS = 86_400;

export type Deadline = { readonly seconds: number; readonly atMs: number };

/** @throws Refusal where the header is not a number of seconds. */
export function readDeadline(headers: RequestHeaders): Deadline | undefined {
  const value = headers[DEADLINE_HEADER];
  if (value === undefined) return undefined;
  const seconds = /^\d{1,9}(\.\d{1,9})?$/.test(value) ? Number(value) : Number.NaN;
  if (!(seconds > 0 && seconds <= MOST_SECONDS))
    throw new Refusal("invalid_request", `${DEADLINE_HEADER}: expected seconds above 0, up to ${MOST_SECONDS}, got ${JSON.stringify(value)}`);
  return { seconds, atMs: performance.now() + seconds * 1000 };
}

export const leftOf = ({ atMs }: Deadline): string => (Math.max(1, atMs - performance.now()) / 1000).toFixed(3);

export const exceeded = ({ seconds }: Deadline): Refusal =>
  new Refusal("deadline_exceeded", `the request was not answered within the ${seconds} s of its ${DEADLINE_HEADER} header`);

/** Resolves with the work, unless the deadline or the client's end comes first. The work is left to its own bounds then. @throws Refusal once the deadline has passed */
export async function before<T>(ending: Ending, work: Promise<T>): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const over = () => reject(ending.reason ?? new Refusal("client_gone", "the client is gone"));
  ending.on(over);
  work.catch(() => {});
  try {
    return await Promise.race([promise, work]);
  } finally {
    ending.off(over);
  }
}
