// Reads a process's state from the kernel: whether it is still the one that was started, and how it ends.
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

export type ProcessIdentity = { readonly pid: number; readonly startTicks: number };

/**
 * Returns the start time in clock ticks since boot, or undefined for a process that is gone or a zombie.
 * @throws if the state cannot be read, for example without a free descriptor.
 */
export function startTicksOf(pid: number): number | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ESRCH") return undefined;
    throw error;
  }
  // The name in parentheses may itself contain spaces and parentheses, so fields are counted from the last one.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  if (fields[0] === "Z" || fields[0] === "X") return undefined;
  const ticks = Number(fields[19]);
  return Number.isFinite(ticks) ? ticks : undefined;
}

export function isSameProcess({ pid, startTicks }: ProcessIdentity): boolean {
  return startTicksOf(pid) === startTicks;
}

/** Sends a signal to a process that may be gone already. */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/** Polls `done` with growing pauses until it returns true or the time is over; returns the last answer. */
export async function eventually(done: () => boolean | Promise<boolean>, boundMs: number): Promise<boolean> {
  const deadline = performance.now() + boundMs;
  for (let pauseMs = 1; ; pauseMs = Math.min(pauseMs * 2, 50)) {
    if (await done()) return true;
    if (performance.now() > deadline) return false;
    await sleep(pauseMs);
  }
}

/** Waits until a process that is about to exec `program` does so or ends; returns whether it runs the program. */
export async function runs(pid: number, program: string, boundMs: number): Promise<boolean> {
  let began = false;
  await eventually(async () => {
    began = (await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")).startsWith(`${program}\0`);
    return began || startTicksOf(pid) === undefined;
  }, boundMs);
  return began;
}

/** Returns how many files a process here may have open; raising the limit further needs a capability that a container may lack. */
export function hardOpenFiles(): number {
  const line = readFileSync("/proc/self/limits", "utf8")
    .split("\n")
    .find((text) => text.startsWith("Max open files"));
  const hard = Number(line?.trim().split(/\s{2,}/)[2]);
  return Number.isFinite(hard) ? Math.min(hard, OPEN_FILES_ENOUGH) : OPEN_FILES_ENOUGH;
}

const OPEN_FILES_ENOUGH = 1_048_576;
