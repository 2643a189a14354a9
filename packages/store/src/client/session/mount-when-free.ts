// Mounting what another process had: until the master hears that one no more, it says that the segment is there already.
import { setTimeout as sleep } from "node:timers/promises";
import { Failure } from "@svc/contract/failures.ts";
import { codes } from "../../rpc/codes.ts";

const RETRY_MS = 250;
/** A master's default for a client that is silent is 2.5 s, its longest a day: whoever sets that waits by starting again. */
const LONGEST_MS = 60_000;

/** @throws what `mount` throws, and STORE_CONFLICT after a minute. */
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
