// How fast a sandbox's output is taken in: what prints without end waits, and the node has time for others.
import { type Rate, TokenBucket } from "@svc/kit/token-bucket.ts";

const TOKEN_BYTES = 1024;
/** 4 MiB a second after a burst of 16; an ordinary build prints less in all. */
const outputRate: Rate = { perSecond: 4096, burst: 16_384 };

/** Says after each chunk how many milliseconds to wait before the next one is read. */
export function openPace(nowMs: number): (bytes: number, nowMs: number) => number {
  const bucket = new TokenBucket(outputRate, nowMs);
  let owed = 0;
  return (bytes, now) => {
    owed += bytes;
    while (owed >= TOKEN_BYTES && bucket.take(now)) owed -= TOKEN_BYTES;
    return owed < TOKEN_BYTES ? 0 : (owed / TOKEN_BYTES / outputRate.perSecond) * 1000;
  };
}
