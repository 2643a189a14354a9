// Retries a mount while the previous owner's lease has not expired (the master answers SEGMENT_ALREADY_EXISTS).
import { setTimeout as sleep } from "node:timers/promises";
import { Failure } from "@svc/contract/failures.ts";
import { codes } from "../../rpc/codes.ts";

const RETRY_MS = 250;
/** A master's client_ttl is 2.5 s by default and a day at most; with more than a minute, the operator starts this process again. */
const LONGEST_MS = 60_000;

/** @throws the failures of `mount`, and STORE_CONFLICT after a minute. */
export async function mountWhenFree<T>(mount: () => Promise<T>): Promise<T> {
  const endMs = performance.now() + LONGEST_MS;
  while (true) {
    try {
      return await mount();
    } catch (error) {
      const isTaken = error instanceof Failure && error.details["storeCode"] === codes.SEGMENT_ALREADY_EXISTS;
      if (!isTaken || performance.now() > endMs) throw error;
    }
    await sleep(RETRY_MS);
  }
}
