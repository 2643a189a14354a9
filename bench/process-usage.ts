// A process's resource usage: processor time by the scheduler's clock, memory as the kernel counts it.
import { readdirSync, readFileSync } from "node:fs";

const CLOCK_TICKS_PER_SECOND = 100;

/**
 * Returns the user and system time of all threads so far, in seconds. The scheduler counts live threads in nanoseconds; ended threads are
 * only in the process's sum, in ticks of 10 ms.
 */
export function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  const byTicks = (Number(fields[11]) + Number(fields[12])) / CLOCK_TICKS_PER_SECOND;
  let nanoseconds = 0;
  for (const thread of readdirSync(`/proc/${pid}/task`)) nanoseconds += Number(runTime(pid, thread));
  return Math.max(byTicks, nanoseconds / 1e9);
}

function runTime(pid: number, thread: string): string {
  try {
    return readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8").split(" ")[0] ?? "0";
  } catch {
    return "0"; // the thread ended meanwhile
  }
}

export const residentBytes = (pid: number) => statusBytes(pid, "VmRSS");

/** The highest resident size of the process so far. */
export const peakBytes = (pid: number) => statusBytes(pid, "VmHWM");

function statusBytes(pid: number, field: string): number {
  return Number(new RegExp(`^${field}:\\s+(\\d+) kB`, "m").exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024;
}
