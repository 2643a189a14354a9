// Limits the rate of a sandbox's output: endless output is slowed down, so that the node can serve others.
import { type Rate, TokenBucket } from "@svc/kit/token-bucket.ts";

const TOKEN_BYTES = 1024;
/** 4 MiB/s after a burst of 16 MiB; an ordinary build prints less in total. */
const outputRate: Rate = { perSecond: 4096, burst: 16_384 };

/** Returns a function that takes each chunk's size and returns how many milliseconds to wait before the next read. */
export function openPace(nowMs: number): (bytes: number, nowMs: number) => number {
  const bucket = new TokenBucket(outputRate, nowMs);
  let owed = 0;
  return (bytes, now) => {
    owed += bytes;
    while (owed >= TOKEN_BYTES && bucket.take(now)) owed -= TOKEN_BYTES;
    return owed < TOKEN_BYTES ? 0 : (owed / TOKEN_BYTES / outputRate.perSecond) * 1000;
  };
}
