// Two clocks: a monotonic one that decides, and the wall clock that is shown.
import { readFileSync } from "node:fs";

export type Clock = {
  /** Milliseconds since this machine booted; no clock step moves it, and it goes on over a restart of the node. */
  monotonicMs(): number;
  /** Milliseconds since 1970, as people read it. */
  wallMs(): number;
};

/** Only for tests: this machine's clock as if somebody had set it wrong by so much. */
const testOffsetMs = Number(process.env["SVC_TEST_CLOCK_OFFSET_MS"] ?? 0);
/** As the machine itself tells it. */
export const hostWallMs = (): number => Date.now() + testOffsetMs;

export const systemClock: Clock = {
  // hrtime is CLOCK_MONOTONIC itself, not relative to this process: deadlines in records stay comparable.
  monotonicMs: () => Number(process.hrtime.bigint() / 1_000_000n),
  wallMs: hostWallMs,
};

/** A difference below this comes of when the two clocks were read and tick, not of somebody who set one. */
const SAME_WITHIN_MS = 20;

/** Shows monotonic times by the wall clock: each the same at every reading, until that clock is set. */
export function openWallTimes(clock: Clock): (monotonicMs: number) => number {
  let apartMs: number | undefined;
  return (monotonicMs) => {
    const nowApartMs = clock.wallMs() - clock.monotonicMs();
    if (apartMs === undefined || Math.abs(nowApartMs - apartMs) > SAME_WITHIN_MS) apartMs = nowApartMs;
    return monotonicMs + apartMs;
  };
}

/** Changes with every boot: monotonic times of another boot mean nothing, and nothing of it runs any more. */
export function bootID(): string {
  return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
}
