// Measures the skew of this machine's clock by the Date header of HTTP servers: one answer is exact to a second, several narrow it down.
import { setTimeout as sleep } from "node:timers/promises";
import type { PeerClient } from "@svc/kit/peers/peer-client.ts";

/** Bounds the skew against one other clock: ours is ahead of it by more than `low` and at most `high` milliseconds. */
export type Apart = { readonly low: number; readonly high: number };

export type Asked = { readonly sentMs: number; readonly answeredMs: number; readonly date: string };

const SECOND_MS = 1_000;
const ATTEMPT_MS = 1_000;
/** A second is not a multiple of this pause, so answers come at different moments of the second and narrow the bounds down. */
const PAUSE_MS = 137;

/** Returns undefined if the answer has no time. */
export function apartBy({ sentMs, answeredMs, date }: Asked): Apart | undefined {
  const second = Date.parse(date);
  return Number.isNaN(second) ? undefined : { low: sentMs - second - SECOND_MS, high: answeredMs - second };
}

/** Returns the intersection of both bounds, or the later one if they contradict each other, since a clock may have been set in between. */
export function narrowed(known: Apart | undefined, next: Apart): Apart {
  if (known === undefined) return next;
  const both = { low: Math.max(known.low, next.low), high: Math.min(known.high, next.high) };
  return both.low < both.high ? both : next;
}

/** Returns our skew against the median of all clocks; of two medians the smaller skew is more likely. Undefined if there is no clock. */
export function skewOf(others: readonly Apart[]): number | undefined {
  const skews = others.map(({ low, high }) => (low + high) / 2).sort((a, b) => a - b);
  const [one, other] = [skews[Math.floor((skews.length - 1) / 2)], skews[Math.ceil((skews.length - 1) / 2)]];
  if (one === undefined || other === undefined) return undefined;
  return Math.round(Math.abs(one) <= Math.abs(other) ? one : other);
}

/** Asks until `isEnough` is true, at most `attempts` times. Undefined if there was no answer. */
export async function askClock(
  url: string,
  nowMs: () => number,
  attempts: number,
  isEnough: (apart: Apart) => boolean,
  ask: PeerClient["fetch"] = fetch,
): Promise<Apart | undefined> {
  let apart: Apart | undefined;
  for (let attempt = 1; attempt <= attempts; attempt++) {
    const sentMs = nowMs();
    try {
      const answer = await ask(url, { redirect: "manual", signal: AbortSignal.timeout(ATTEMPT_MS) });
      const answeredMs = nowMs();
      await answer.body?.cancel();
      const found = apartBy({ sentMs, answeredMs, date: answer.headers.get("date") ?? "" });
      if (found !== undefined) apart = narrowed(apart, found);
    } catch {
      if (apart === undefined) return undefined;
    }
    if (apart !== undefined && isEnough(apart)) return apart;
    if (attempt < attempts) await sleep(PAUSE_MS, undefined, { ref: false });
  }
  return apart;
}
