// Two clocks: deadlines use the monotonic one, people see the wall clock.
import { readFileSync } from "node:fs";

export type Clock = {
  /** Milliseconds since this machine booted; clock steps do not affect it, and it continues across restarts of the node. */
  monotonicMs(): number;
  /** Milliseconds since 1970, for display. */
  wallMs(): number;
};

/** For tests: simulates a machine whose clock is wrong by this offset. */
const testOffsetMs = Number(process.env["SVC_TEST_CLOCK_OFFSET_MS"] ?? 0);
/** The machine's own wall clock, before any correction by the deployment's. */
export const hostWallMs = (): number => Date.now() + testOffsetMs;

export const systemClock: Clock = {
  // hrtime is CLOCK_MONOTONIC and not relative to this process, so deadlines in records stay comparable.
  monotonicMs: () => Number(process.hrtime.bigint() / 1_000_000n),
  wallMs: hostWallMs,
};

/** Smaller differences come from reading the two clocks one after the other, not from a step of the wall clock. */
const SAME_WITHIN_MS = 20;

/** Converts monotonic times to wall time. Repeated conversions give the same result until the wall clock is set. */
export function openWallTimes(clock: Clock): (monotonicMs: number) => number {
  let apartMs: number | undefined;
  return (monotonicMs) => {
    const nowApartMs = clock.wallMs() - clock.monotonicMs();
    if (apartMs === undefined || Math.abs(nowApartMs - apartMs) > SAME_WITHIN_MS) apartMs = nowApartMs;
    return monotonicMs + apartMs;
  };
}

/** Identifies the boot: monotonic times of another boot have no meaning, and no process of it runs any more. */
export function bootID(): string {
  return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
}
