// Two clocks: a monotonic one that decides, and the wall clock that is shown.
import { readFileSync } from "node:fs";

export type Clock = {
  /** Milliseconds since this machine booted; no clock step moves it, and it goes on over a restart of the node. */
  monotonicMs(): number;
  /** Milliseconds since 1970, as people read it. */
  wallMs(): number;
};

export const systemClock: Clock = {
  // hrtime is CLOCK_MONOTONIC itself, not relative to this process: deadlines in records stay comparable.
  monotonicMs: () => Number(process.hrtime.bigint() / 1_000_000n),
  wallMs: () => Date.now(),
};

/** Changes with every boot: monotonic times of another boot mean nothing, and nothing of it runs any more. */
export function bootID(): string {
  return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
}
